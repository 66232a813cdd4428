package io.github.delaybridge.outbox;

import io.github.delaybridge.Conflict;
import io.github.delaybridge.DelaybridgeException;
import io.github.delaybridge.Due;
import io.github.delaybridge.DuplicateException;
import io.github.delaybridge.Message;
import io.github.delaybridge.Ref;
import io.github.delaybridge.internal.Limits;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * Writes rows into the table of one database, PostgreSQL, MySQL or MariaDB. It holds no connection, and is safe for
 * threads.
 *
 * <p>Each call takes the connection on which the transaction is open, without autocommit; it never commits, and does not
 * close it. The driver's timeouts bound it.
 */
public final class Outbox {
    /** The table's name where none is given. */
    public static final String TABLE = "delay_outbox";

    private static final Pattern TABLE_FORM = Pattern.compile("([a-z_][a-z0-9_]{0,40}\\.)?[a-z_][a-z0-9_]{0,40}");
    private static final Comparator<Ref> BY_BYTES = by(Ref::key).thenComparing(by(Ref::id));

    private final Dialect dialect;

    private Outbox(String table, Function<String, Dialect> dialect) {
        if (!TABLE_FORM.matcher(table).matches()) {
            String limit = "1 to 41 of a-z 0-9 _, the first no digit; a schema of the same form and a dot may come before";
            throw Limits.invalid("table", table, limit);
        }
        this.dialect = dialect.apply(table);
    }

    /** For PostgreSQL 12 or later. */
    public static Outbox postgres() {
        return postgres(TABLE);
    }

    /** For PostgreSQL, with the table of the bridge's configuration, perhaps with its schema and a dot before it. */
    public static Outbox postgres(String table) {
        return new Outbox(table, Postgres::new);
    }

    /** For MySQL 8 and MariaDB. */
    public static Outbox mysql() {
        return mysql(TABLE);
    }

    /** For MySQL and MariaDB, with the table of the bridge's configuration. */
    public static Outbox mysql(String table) {
        return new Outbox(table, MySql::new);
    }

    /** For the database of a connection. Throws InvalidException if that is another kind. */
    public static Outbox of(Connection connection, String table) throws SQLException {
        String product = connection.getMetaData().getDatabaseProductName();
        return switch (product) {
            case "PostgreSQL" -> postgres(table);
            case "MySQL", "MariaDB" -> mysql(table);
            default -> throw Limits.invalid("database", product, "must be PostgreSQL, MySQL or MariaDB");
        };
    }

    /**
     * Writes a message.
     *
     * <p>REPLACE writes a replacement: the bridge cancels the old message first. If the transaction sees a cancel of the
     * old one, its own included, the new one follows it whatever the message's conflict says. A delay counts from the
     * database's clock at the call. maxWait is for Client only.
     *
     * @throws io.github.delaybridge.InvalidException nothing was written, and the transaction can go on
     * @throws DuplicateException the table has a message of that identity that is not published or cancelled, and the
     *     message's conflict is neither KEEP nor REPLACE; nothing was written, and the transaction can go on
     * @throws SQLException the database's
     */
    public Written schedule(Connection tx, String queue, Message message) throws SQLException {
        Limits.queue(queue);
        Row row = Row.of(message);
        Dialect.Identity identity = new Dialect.Identity(queue, row.ref());
        if (dialect.insert(tx, identity, row)) {
            return written(row, "created");
        }
        if (message.conflict() == Conflict.REPLACE) {
            dialect.insertReplacement(tx, identity, row, null);
            return written(row, "replaced");
        }
        Long target = dialect.cancelled(tx, identity);
        if (target != null) {
            dialect.insertReplacement(tx, identity, row, target);
            return written(row, "created");
        }
        if (message.conflict() == Conflict.KEEP) {
            return written(row, "existing");
        }
        String detail = "the outbox has a message of that identity, which is not published or cancelled";
        throw new DuplicateException(row.ref().id(), detail);
    }

    /**
     * Writes messages, and returns the outcome of each, by index. They are written in the order of their keys and ids,
     * so that two batches never deadlock.
     */
    public List<WrittenItem> scheduleBatch(Connection tx, String queue, List<Message> messages) throws SQLException {
        WrittenItem[] items = new WrittenItem[messages.size()];
        List<Integer> order = IntStream.range(0, items.length)
                .boxed()
                .sorted(Comparator.comparing(i -> messages.get(i).ref(), BY_BYTES))
                .toList();
        for (int i : order) {
            try {
                items[i] = new WrittenItem(schedule(tx, queue, messages.get(i)), null);
            } catch (DelaybridgeException e) {
                items[i] = new WrittenItem(null, e);
            }
        }
        return List.of(items);
    }

    /**
     * Records that a message is cancelled, whatever its state: the bridge tells in the row whether that came in time.
     *
     * @throws io.github.delaybridge.InvalidException nothing was written
     * @throws SQLException the database's
     */
    public void cancel(Connection tx, String queue, Ref ref) throws SQLException {
        operate(tx, queue, ref, Dialect.CANCEL, new Row.When(0, false));
    }

    /** Records that a message has a new due time. Its errors are those of cancel. */
    public void reschedule(Connection tx, String queue, Ref ref, Due due) throws SQLException {
        Limits.identity(ref);
        operate(tx, queue, ref, Dialect.RESCHEDULE, Row.when(ref, due));
    }

    private void operate(Connection tx, String queue, Ref ref, int op, Row.When due) throws SQLException {
        Limits.queue(queue);
        Limits.identity(ref);
        dialect.insertOperation(tx, new Dialect.Identity(queue, ref), op, due);
    }

    private static Written written(Row row, String status) {
        return new Written(row.ref().id(), row.ref().key(), status);
    }

    private static Comparator<Ref> by(Function<Ref, String> part) {
        return Comparator.comparing(ref -> part.apply(ref).getBytes(StandardCharsets.UTF_8), Arrays::compareUnsigned);
    }
}
