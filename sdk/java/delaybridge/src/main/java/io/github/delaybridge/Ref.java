package io.github.delaybridge;

/**
 * Names a message within a queue.
 *
 * @param id the message's
 * @param key its key; empty for a message without one
 */
public record Ref(String id, String key) {
    /** A message without a key. */
    public static Ref of(String id) {
        return new Ref(id, "");
    }
}
