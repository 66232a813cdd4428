package io.github.delaybridge.outbox;

import io.github.delaybridge.Ref;

/**
 * What a schedule wrote.
 *
 * @param id the message's, which was made if none was given
 * @param key the message's
 * @param status {@code created}, {@code replaced}, or {@code existing} (with KEEP: nothing was written)
 */
public record Written(String id, String key, String status) {
    /** The message's name for cancel and reschedule. */
    public Ref ref() {
        return new Ref(id, key);
    }
}
