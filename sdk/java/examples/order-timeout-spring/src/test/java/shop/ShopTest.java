package shop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.abort;

import io.github.delaybridge.Client;
import io.github.delaybridge.NotFoundException;
import io.github.delaybridge.Ref;
import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.test.annotation.DirtiesContext;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.transaction.support.TransactionTemplate;

/** The shop with a real database, bridge and broker; only the bridge's clock is moved. */
@SpringBootTest
@DirtiesContext // So that it ends before what surrounds it.
@Timeout(180)
class ShopTest {
    @AutoClose
    private static Surroundings surroundings;

    private Client client;

    @Autowired
    private Orders orders;

    @Autowired
    private TransactionTemplate transaction;

    @DynamicPropertySource
    static void surround(DynamicPropertyRegistry registry) throws SQLException {
        surroundings = new Surroundings(variable("DELAYBRIDGE_TEST_POSTGRES_URL"));
        surroundings.properties().forEach((name, value) -> registry.add(name, () -> value));
    }

    private static String variable(String name) {
        String value = System.getenv(name);
        String message = name + " is not set: make sdk-java sets it";
        if (value == null) {
            return "true".equals(System.getenv("CI")) ? fail(message) : abort(message);
        }
        return value;
    }

    @BeforeEach
    void connect() {
        client = surroundings.bridge.client();
    }

    @Test
    void anUnpaidOrderIsCalledOffAndAPaidOneIsNot() {
        orders.place("41");
        orders.place("42");
        until(() -> isWaiting("41") && isWaiting("42"));
        assertThat(orders.pay("42")).isTrue();
        until(() -> !isWaiting("42"));
        surroundings.bridge.advance(Duration.ofMinutes(31));
        until(() -> orders.state("41").equals("called off"));
        assertThat(orders.state("42")).isEqualTo("paid");
        assertThat(orders.pay("41")).isFalse();
    }

    @Test
    void anOrderThatIsRolledBackHasNoTimeout() {
        transaction.executeWithoutResult(tx -> {
            orders.place("43");
            tx.setRollbackOnly();
        });
        orders.place("44");
        until(() -> isWaiting("44")); // Rows are taken in their order.
        assertThat(isWaiting("43")).isFalse();
    }

    /** Whether the bridge has taken the order's row, and not published or cancelled it. */
    private boolean isWaiting(String order) {
        try {
            return client.get(Ref.of(order)).state().equals("scheduled");
        } catch (NotFoundException e) {
            return false;
        }
    }

    private static void until(Callable<Boolean> isSo) {
        await().atMost(Duration.ofMinutes(2)).until(isSo);
    }
}
