package shop;

import io.github.delaybridge.Message;
import io.github.delaybridge.outbox.Outbox;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import javax.sql.DataSource;

/** Places an order and schedules its timeout in one transaction. */
final class Transaction {
    private final Outbox outbox = Outbox.postgres(); // or Outbox.mysql()
    private final DataSource database;

    Transaction(DataSource database) {
        this.database = database;
    }

    void place(String order) throws SQLException {
        try (Connection tx = database.getConnection()) {
            tx.setAutoCommit(false);
            try (PreparedStatement insert = tx.prepareStatement("INSERT INTO orders (id) VALUES (?)")) {
                insert.setString(1, order);
                insert.executeUpdate();
            }
            outbox.schedule(tx, "orders", Message.builder("order.timeout").id(order).after(Duration.ofMinutes(30)).build());
            tx.commit(); // Both are there, or none.
        }
    }
}
