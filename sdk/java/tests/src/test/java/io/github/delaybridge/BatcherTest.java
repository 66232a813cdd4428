package io.github.delaybridge;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.github.delaybridge.testing.FakeBridge;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The bounds of a Batcher, and its end. */
@Timeout(60)
class BatcherTest {
    private final FakeBridge bridge = new FakeBridge("orders");
    private final CountDownLatch isAsked = new CountDownLatch(1);
    private final CountDownLatch mayAnswer = new CountDownLatch(1);
    private final Client client = bridge.clientBuilder()
            .queue("orders")
            .transport((request, timeout) -> {
                isAsked.countDown();
                mayAnswer.await(20, TimeUnit.SECONDS); // The end of a test that failed waits for it, too.
                return bridge.send(request, timeout);
            })
            .build();

    private static Message message(String id) {
        return Message.builder("t").id(id).after(Duration.ofHours(1)).build();
    }

    @Test
    void withoutRoomAddWaitsAndNothingIsDropped() throws Exception {
        try (Batcher batcher = Batcher.builder(client).maxPending(2).linger(Duration.ZERO).build()) {
            batcher.add(message("a"));
            isAsked.await();
            CompletableFuture<ScheduleResult> b = batcher.add(message("b"));
            assertThatThrownBy(() -> batcher.add(message("c"), Duration.ofMillis(1)))
                    .isInstanceOf(TimeoutException.class)
                    .hasMessageContaining("2 messages wait");
            mayAnswer.countDown();
            batcher.add(message("d"));
            batcher.flush();
            assertThat(b).isCompletedWithValueMatching(r -> r.status().equals("created"));
        }
        assertThat(bridge.scheduled("orders").stream().map(Message::id)).containsExactlyInAnyOrder("a", "b", "d");
    }

    @Test
    void bytesHaveABoundToo() throws Exception {
        try (Batcher batcher = Batcher.builder(client).maxPendingBytes(60).linger(Duration.ZERO).build()) {
            batcher.add(message("a"));
            isAsked.await();
            assertThatThrownBy(() -> batcher.add(message("b"), Duration.ofMillis(1))).isInstanceOf(TimeoutException.class);
            mayAnswer.countDown();
        }
    }

    @Test
    void closeWaitsAndIsTheEnd() throws Exception {
        Batcher batcher = Batcher.builder(client).linger(Duration.ofDays(1)).build();
        CompletableFuture<ScheduleResult> a = batcher.add(message("a"));
        CompletableFuture<ScheduleResult> b = batcher.add(message("b"));
        b.cancel(false);
        mayAnswer.countDown();
        batcher.close();
        batcher.close();
        assertThat(a).isCompleted();
        assertThat(bridge.scheduled("orders").stream().map(Message::id)).containsExactly("a");
        assertThatThrownBy(() -> batcher.add(message("c"))).isInstanceOf(IllegalStateException.class);
    }

    @Test
    void aWrongLimitIsNamed() {
        assertThatThrownBy(() -> Batcher.builder(client).maxMessages(1001).build())
                .isInstanceOf(InvalidException.class)
                .hasMessage("invalid: maxMessages 1001: must be 1 to 1000");
    }
}
