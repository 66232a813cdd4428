package shop;

import io.nats.client.Connection;
import io.nats.client.JetStreamApiException;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PushSubscribeOptions;
import io.nats.client.api.StreamConfiguration;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.stereotype.Component;

/** Consumes the timeouts that the bridge publishes to NATS. */
@Component
class Timeouts implements DisposableBean {
    private static final Logger LOG = LoggerFactory.getLogger(Timeouts.class);

    private final Connection nats;
    private final Orders orders;

    Timeouts(Orders orders, @Value("${nats.url}") String url)
            throws IOException, InterruptedException, JetStreamApiException {
        this.orders = orders;
        nats = Nats.connect(Options.builder().server(url).maxReconnects(-1).build());
        nats.jetStreamManagement()
                .addStream(StreamConfiguration.builder().name("orders").subjects(Orders.TIMEOUT).build());
        nats.jetStream()
                .subscribe(
                        Orders.TIMEOUT,
                        nats.createDispatcher(),
                        this::consume,
                        false,
                        PushSubscribeOptions.builder().durable("shop").build());
    }

    /** Without an acknowledgement, the message comes again. */
    private void consume(Message message) {
        String order = new String(message.getData(), StandardCharsets.UTF_8);
        if (orders.callOff(order)) {
            LOG.info("order {} was not paid: called off", order);
        }
        message.ack();
    }

    @Override
    public void destroy() throws InterruptedException {
        nats.close();
    }
}
