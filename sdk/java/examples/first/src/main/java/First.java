import io.github.delaybridge.Client;
import io.github.delaybridge.Message;
import io.github.delaybridge.ScheduleResult;
import io.nats.client.Connection;
import io.nats.client.Nats;
import io.nats.client.Subscription;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** Schedules a message that is due in one second, and receives it: First BRIDGE NATS, the addresses that bridge dev prints. */
public final class First {
    public static void main(String[] args) throws Exception {
        try (Connection broker = Nats.connect(args[1])) {
            Subscription arrivals = broker.subscribe("order.timeout");
            Client client = Client.builder().servers(args[0]).queue("orders").build();
            Message message = Message.builder("order.timeout").after(Duration.ofSeconds(1)).body("order 42").build();
            ScheduleResult result = client.schedule(message);
            System.out.println("scheduled " + result.id());
            byte[] arrival = arrivals.nextMessage(Duration.ofSeconds(30)).getData();
            System.out.println("received " + new String(arrival, StandardCharsets.UTF_8));
        }
    }
}
