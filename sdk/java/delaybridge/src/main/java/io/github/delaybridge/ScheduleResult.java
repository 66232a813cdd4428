package io.github.delaybridge;

import java.time.Instant;

/**
 * What a schedule did.
 *
 * @param id the message's, which the bridge has made if none was given
 * @param key the message's
 * @param status {@code created}, {@code replaced}, or {@code existing} (with {@link Conflict#KEEP})
 * @param dueAt by the clock of the bridge's Redis
 * @param notDurable it was done, but not confirmed in time as the queue's durability asks
 * @param replayed the answer is that of an earlier request under the same idempotency key
 */
public record ScheduleResult(
        String id, String key, String status, Instant dueAt, boolean notDurable, boolean replayed) {
    /** The message's name for cancel, reschedule and get. */
    public Ref ref() {
        return new Ref(id, key);
    }
}
