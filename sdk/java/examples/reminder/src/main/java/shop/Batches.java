package shop;

import io.github.delaybridge.Batcher;
import io.github.delaybridge.Client;
import io.github.delaybridge.Message;
import io.github.delaybridge.ScheduleResult;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Schedules many messages, and tells those that were refused. */
final class Batches {
    private Batches() {}

    static void schedule(Client client, List<Message> messages) throws InterruptedException {
        Map<Message, CompletableFuture<ScheduleResult>> outcomes = new LinkedHashMap<>();
        try (Batcher batcher = Batcher.of(client)) {
            for (Message message : messages) {
                outcomes.put(message, batcher.add(message)); // It waits while there is no room.
            }
        } // Its end sends the rest, and waits until every message has its outcome.
        outcomes.forEach((message, outcome) -> outcome.exceptionally(e -> {
            System.out.println(message.id() + " was not scheduled: " + e.getMessage());
            return null;
        }));
    }
}
