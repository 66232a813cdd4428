package shop;

import io.github.delaybridge.Client;
import io.github.delaybridge.Message;
import java.time.Duration;

/** A shop whose unpaid orders are called off. */
final class Shop {
    private final Client client;

    Shop(Client client) {
        this.client = client;
    }

    void place(int order) {
        client.schedule(
                Message.builder("order.timeout").id("order-" + order).after(Duration.ofMinutes(30)).build());
    }

    void pay(int order) {
        client.cancel("order-" + order);
    }
}
