package io.github.delaybridge;

import java.time.Duration;
import java.time.Instant;

/**
 * When a message is due: after a delay, by the bridge's clock, or at an instant. Both count to the millisecond, rounded
 * up, and reach 10 years at most. A delay of 0 or less, and an instant that has passed, publish at once.
 *
 * @param after the delay; null if {@code at} is there
 * @param at the instant; null if {@code after} is there
 * @param spread up to that much is added, by a hash of the message's identity, so that a wave does not come at once;
 *     null: nothing
 */
public record Due(Duration after, Instant at, Duration spread) {
    /** Throws InvalidException unless one of after and at is there. */
    public Due {
        if ((after == null) == (at == null)) {
            throw new InvalidException("due", "must be a delay or an instant, and not both");
        }
    }

    /** After a delay. */
    public static Due after(Duration delay) {
        return new Due(delay, null, null);
    }

    /** At an instant. */
    public static Due at(Instant instant) {
        return new Due(null, instant, null);
    }

    /** The same with a spread. */
    public Due spreadOver(Duration spread) {
        return new Due(after, at, spread);
    }
}
