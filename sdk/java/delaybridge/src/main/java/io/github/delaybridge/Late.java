package io.github.delaybridge;

import java.time.Duration;

/**
 * How late a message may be, and what happens to it after that.
 *
 * @param then {@code publish} (however late), {@code dead} (it goes to the dead letters) or {@code drop}
 * @param after counts from the due time, 1 ms or more; null with {@code publish}
 */
public record Late(String then, Duration after) {
    /** However late, it is published. */
    public static Late publish() {
        return new Late("publish", null);
    }

    /** Later than that, it goes to the dead letters. */
    public static Late deadAfter(Duration after) {
        return new Late("dead", after);
    }

    /** Later than that, it is dropped. */
    public static Late dropAfter(Duration after) {
        return new Late("drop", after);
    }
}
