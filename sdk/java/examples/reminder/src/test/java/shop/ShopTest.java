package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.delaybridge.testing.FakeBridge;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class ShopTest {
    @Test
    void anUnpaidOrderIsCalledOff() {
        FakeBridge bridge = new FakeBridge("orders");
        Shop shop = new Shop(bridge.client("orders")); // a real Client, without a network
        shop.place(41);
        shop.place(42);
        shop.pay(41);
        assertTrue(bridge.advance(Duration.ofMinutes(29)).isEmpty());
        bridge.advance(Duration.ofMinutes(1));
        assertEquals("order-42", bridge.published().get(0).id());
        assertEquals(1, bridge.published().size());
    }
}
