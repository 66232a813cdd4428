package io.github.delaybridge.outbox;

import java.sql.Connection;
import java.sql.SQLException;

/** PostgreSQL 12 or later. */
final class Postgres extends Dialect {
    Postgres(String table) {
        super(table);
    }

    @Override
    String now() {
        return "CAST(ceil(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)";
    }

    @Override
    String fromLive() {
        return " FROM " + table + OF + " AND op = 0 AND status IN (0, 1)";
    }

    @Override
    String fromOperations() {
        return " FROM " + table + OF + " AND op * 1 > 0 AND status * 1 = 0"; // The expressions of the index.
    }

    @Override
    String asText() {
        return "CAST(? AS text)";
    }

    @Override
    String asNumber() {
        return "CAST(? AS bigint)";
    }

    @Override
    String asJson() {
        return "CAST(CAST(? AS text) AS jsonb)";
    }

    @Override
    String asBytes() {
        return "CAST(? AS bytea)";
    }

    @Override
    boolean insert(Connection c, Identity of, Row row) throws SQLException {
        String ignored = " ON CONFLICT (queue, message_key, message_id) WHERE op = 0 AND status IN (0, 1) DO NOTHING";
        return insert(c, of, row, SCHEDULE, null, "INSERT", ignored) == 1;
    }

    @Override
    void insertOperation(Connection c, Identity of, int op, Row.When due) throws SQLException {
        insertAbout(c, of, op, due, "(" + standing() + ")", of.times(2));
    }
}
