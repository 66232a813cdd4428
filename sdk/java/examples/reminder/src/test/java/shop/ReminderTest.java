package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.delaybridge.Message;
import io.github.delaybridge.NotFoundException;
import io.github.delaybridge.Ref;
import io.github.delaybridge.testing.DevBridge;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class ReminderTest {
    @AutoClose
    private static final DevBridge BRIDGE = DevBridge.start();

    @Test
    void theReminderIsCancelled() {
        Reminder.run(BRIDGE.url());
        assertThrows(NotFoundException.class, () -> BRIDGE.client().cancel(new Ref("order-42/timeout", "")));
    }

    @Test
    void batchesAreScheduled() throws InterruptedException {
        Message message = Message.builder("reminder").id("a").after(Duration.ofDays(7)).build();
        Batches.schedule(BRIDGE.client(), List.of(message));
        assertEquals("scheduled", BRIDGE.client().get(Ref.of("a")).state());
    }
}
