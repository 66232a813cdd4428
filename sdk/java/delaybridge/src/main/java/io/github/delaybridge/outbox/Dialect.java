package io.github.delaybridge.outbox;

import io.github.delaybridge.Ref;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** The statements that both dialects have. They are those of the SDK for Go, delay/outbox. */
abstract class Dialect {
    static final int SCHEDULE = 0;
    static final int CANCEL = 1;
    static final int RESCHEDULE = 2;
    static final int REPLACE = 3;

    static final String OF = " WHERE queue = ? AND message_key = ? AND message_id = ?";

    final String table;

    Dialect(String table) {
        this.table = table;
    }

    /** The milliseconds of the database's clock. */
    abstract String now();

    /** The live message of an identity, by the unique index. */
    abstract String fromLive();

    /** The pending operations of an identity. */
    abstract String fromOperations();

    /** Inserts a message that replaces none; false if the identity is taken. */
    abstract boolean insert(Connection c, Identity of, Row row) throws SQLException;

    /** Inserts a cancel or a reschedule of the standing message. */
    abstract void insertOperation(Connection c, Identity of, int op, Row.When due) throws SQLException;

    // Drivers that bind on the server leave the types to it.
    String asText() {
        return "?";
    }

    String asNumber() {
        return "?";
    }

    String asJson() {
        return "?";
    }

    String asBytes() {
        return "?";
    }

    /** Names a message in a table. */
    record Identity(String queue, Ref ref) {
        /** The arguments of OF, so many times. */
        List<Object> times(int n) {
            List<Object> all = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                all.addAll(List.of(queue, ref.key(), ref.id()));
            }
            return all;
        }
    }

    /** A replacement; target is the message whose cancel it follows, or null. */
    void insertReplacement(Connection c, Identity of, Row row, Long target) throws SQLException {
        insert(c, of, row, REPLACE, target, "INSERT", "");
    }

    /** The id of the standing message, if a cancel of it is pending, or null. */
    Long cancelled(Connection c, Identity of) throws SQLException {
        String sql = "SELECT target" + fromOperations() + " AND op = " + CANCEL + " AND target = (" + standing()
                + ") LIMIT 1";
        return number(c, sql, of.times(3));
    }

    /**
     * The id of the message that an operation is about: the newest one that lives or will replace it. Its arguments are
     * the identity, twice.
     */
    String standing() {
        String newest = " ORDER BY id DESC LIMIT 1), 0)";
        return "SELECT NULLIF(GREATEST(COALESCE((SELECT id" + fromLive() + newest + ", COALESCE((SELECT id"
                + fromOperations() + " AND op = " + REPLACE + newest + "), 0)";
    }

    int insert(Connection c, Identity of, Row row, int op, Long target, String verb, String end) throws SQLException {
        String about = op + ", " + (target == null ? "NULL" : target) + ", FALSE, ";
        String sql = verb + " INTO " + table
                + " (queue, message_key, message_id, op, target, tried, due_ms, topic, headers, body) VALUES ("
                + identity() + about + due(row.due()) + ", " + asText() + ", " + asJson() + ", " + asBytes() + ")" + end;
        List<Object> args = of.times(1);
        args.add(row.due().ms());
        args.add(row.topic());
        args.add(row.headers());
        args.add(row.body());
        return write(c, sql, args);
    }

    /** Inserts an operation; target is an expression, and targets are its arguments. */
    void insertAbout(Connection c, Identity of, int op, Row.When due, String target, List<Object> targets)
            throws SQLException {
        String sql = "INSERT INTO " + table
                + " (queue, message_key, message_id, op, due_ms, revision, target) VALUES ("
                + identity() + op + ", " + due(due) + ", 0, " + target + ")";
        List<Object> args = of.times(1);
        args.add(due.ms());
        args.addAll(targets);
        write(c, sql, args);
    }

    private String identity() {
        return (asText() + ", ").repeat(3);
    }

    private String due(Row.When due) {
        return due.isRelative() ? now() + " + " + asNumber() : asNumber();
    }

    /** Returns how many rows were written. */
    private static int write(Connection c, String sql, List<Object> args) throws SQLException {
        try (PreparedStatement s = prepared(c, sql, args)) {
            return s.executeUpdate();
        }
    }

    /** The first column of the first row; null if there is none. */
    static Long number(Connection c, String sql, List<Object> args) throws SQLException {
        try (PreparedStatement s = prepared(c, sql, args);
                ResultSet found = s.executeQuery()) {
            if (!found.next()) {
                return null;
            }
            long n = found.getLong(1);
            return found.wasNull() ? null : n;
        }
    }

    private static PreparedStatement prepared(Connection c, String sql, List<Object> args) throws SQLException {
        PreparedStatement s = c.prepareStatement(sql);
        try {
            for (int i = 0; i < args.size(); i++) {
                s.setObject(i + 1, args.get(i));
            }
            return s;
        } catch (SQLException e) {
            s.close();
            throw e;
        }
    }
}
