package shop;

import io.github.delaybridge.Message;
import io.github.delaybridge.spring.TransactionalOutbox;
import java.time.Duration;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** Orders, each of which is placed, paid or called off. */
@Service
public class Orders {
    static final String TIMEOUT = "order.timeout";

    private final JdbcClient database;
    private final TransactionalOutbox outbox;

    Orders(JdbcClient database, TransactionalOutbox outbox) {
        this.database = database;
        this.outbox = outbox;
    }

    /** Places an order, and schedules its timeout in the same transaction: both are there, or none. */
    @Transactional
    public void place(String order) {
        database.sql("INSERT INTO orders (id, state) VALUES (?, 'placed')").param(order).update();
        outbox.schedule(
                Message.builder(TIMEOUT).id(order).after(Duration.ofMinutes(30)).body(order).build());
    }

    /** Pays an order, and cancels its timeout. Returns false if it was called off before. */
    @Transactional
    public boolean pay(String order) {
        outbox.cancel(order);
        return move(order, "paid");
    }

    /** Calls off an order that is not paid. It is safe to repeat, since a message may come twice. */
    @Transactional
    public boolean callOff(String order) {
        return move(order, "called off");
    }

    /** The cancel may come too late, so the order itself decides which of the two was first. */
    private boolean move(String order, String state) {
        String sql = "UPDATE orders SET state = ? WHERE id = ? AND state = 'placed'";
        return database.sql(sql).params(state, order).update() == 1;
    }

    /** What an order is now. */
    public String state(String order) {
        return database.sql("SELECT state FROM orders WHERE id = ?").param(order).query(String.class).single();
    }
}
