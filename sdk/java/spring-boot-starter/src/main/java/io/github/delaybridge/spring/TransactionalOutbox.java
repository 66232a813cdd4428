package io.github.delaybridge.spring;

import io.github.delaybridge.Due;
import io.github.delaybridge.Message;
import io.github.delaybridge.Ref;
import io.github.delaybridge.outbox.Outbox;
import io.github.delaybridge.outbox.Written;
import io.github.delaybridge.outbox.WrittenItem;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.UncategorizedSQLException;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.jdbc.support.SQLErrorCodeSQLExceptionTranslator;
import org.springframework.jdbc.support.SQLExceptionTranslator;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * Writes messages of one queue as rows in the current transaction, that of {@code @Transactional} or of a
 * TransactionTemplate: if it commits, they are published; if it rolls back, they never existed. It is safe for threads.
 *
 * <p>Its calls are those of {@link Outbox}, and throw DelaybridgeExceptions, {@link DataAccessException}, and {@link
 * IllegalTransactionStateException} where no transaction of the DataSource is under way.
 */
public class TransactionalOutbox {
    private final DataSource database;
    private final String queue;
    private final String table;
    private final SQLExceptionTranslator translator;
    private volatile Outbox outbox; // Which kind of database it is, the first connection tells.

    /** An outbox of a queue in the table of a database. */
    public TransactionalOutbox(DataSource database, String queue, String table) {
        this.database = database;
        this.queue = queue;
        this.table = table;
        translator = new SQLErrorCodeSQLExceptionTranslator(database);
    }

    /** The same for another queue. */
    public TransactionalOutbox withQueue(String name) {
        return new TransactionalOutbox(database, name, table);
    }

    /** Writes a message. After a DuplicateException or an InvalidException the transaction can go on. */
    public Written schedule(Message message) {
        return in((tx, box) -> box.schedule(tx, queue, message));
    }

    /** Writes messages, and returns the outcome of each, by index. */
    public List<WrittenItem> scheduleBatch(List<Message> messages) {
        return in((tx, box) -> box.scheduleBatch(tx, queue, messages));
    }

    /** Records that a message without a key is cancelled. */
    public void cancel(String id) {
        cancel(Ref.of(id));
    }

    /** Records that a message is cancelled, whatever its state. */
    public void cancel(Ref ref) {
        in((tx, box) -> {
            box.cancel(tx, queue, ref);
            return null;
        });
    }

    /** Records that a message has a new due time. */
    public void reschedule(Ref ref, Due due) {
        in((tx, box) -> {
            box.reschedule(tx, queue, ref, due);
            return null;
        });
    }

    private interface Work<T> {
        T run(Connection tx, Outbox box) throws SQLException;
    }

    private <T> T in(Work<T> work) {
        // Otherwise the row would be committed alone.
        if (!TransactionSynchronizationManager.isActualTransactionActive()) {
            throw new IllegalTransactionStateException("the outbox writes in a transaction, and none is under way here");
        }
        Connection tx = DataSourceUtils.getConnection(database);
        try {
            if (tx.getAutoCommit()) {
                throw new IllegalTransactionStateException("the transaction under way is not one of the outbox' DataSource");
            }
            return work.run(tx, outbox(tx));
        } catch (SQLException e) {
            DataAccessException known = translator.translate("outbox", null, e);
            throw known != null ? known : new UncategorizedSQLException("outbox", null, e);
        } finally {
            DataSourceUtils.releaseConnection(tx, database);
        }
    }

    private Outbox outbox(Connection tx) throws SQLException {
        if (outbox == null) {
            outbox = Outbox.of(tx, table);
        }
        return outbox;
    }
}
