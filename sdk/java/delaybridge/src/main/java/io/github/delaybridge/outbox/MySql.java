package io.github.delaybridge.outbox;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.Collections;
import java.util.List;

/** MySQL 8 and MariaDB. */
final class MySql extends Dialect {
    private final String name;

    MySql(String table) {
        super(table);
        name = table.substring(table.indexOf('.') + 1);
    }

    @Override
    String now() {
        return "((TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + 999) DIV 1000)";
    }

    @Override
    String fromLive() {
        return " FROM " + table + " FORCE INDEX (" + name + "_live)" + OF + " AND live > 0";
    }

    @Override
    String fromOperations() {
        return " FROM " + table + " FORCE INDEX (" + name + "_open)" + OF
                + " AND finished_ms IS NULL AND op > 0 AND status = 0";
    }

    @Override
    boolean insert(Connection c, Identity of, Row row) throws SQLException {
        // An INSERT that meets a duplicate locks the gap beside it in the unique index, so it first reads without a
        // lock. That is enough for a message that is not due; a due one may have been published since the snapshot.
        String sql = "SELECT CASE WHEN due_ms > " + now() + " THEN 0 ELSE id END FROM " + table + OF + " AND live = 1";
        Long found = number(c, sql, of.times(1));
        if (found != null && (found == 0 || number(c, present(), List.of(found)) != null)) {
            return false;
        }
        // All values are checked, so it can only ignore duplicates.
        return insert(c, of, row, SCHEDULE, null, "INSERT IGNORE", "") == 1;
    }

    /**
     * Reads the current version of a live row by its number, which locks no gap. It finds nothing where another
     * transaction has locked the row, where MySQL before 8.0.22 requires more rights than a producer has, and where
     * MariaDB with innodb_snapshot_isolation would end the transaction.
     */
    private String present() {
        return "SELECT COALESCE(NULL /*!80022 , live */ /*M!100600 , live */) FROM " + table
                + " WHERE id = ? /*M!110402 AND NOT @@innodb_snapshot_isolation */"
                + " /*!80022 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */";
    }

    @Override
    void insertOperation(Connection c, Identity of, int op, Row.When due) throws SQLException {
        // A SELECT inside the INSERT would lock what it reads, and so wait for the bridge.
        Long target = number(c, "SELECT (" + standing() + ")", of.times(2));
        insertAbout(c, of, op, due, "?", Collections.singletonList(target));
    }
}
