package io.github.delaybridge.testing;

import java.util.Locale;

/** What a request to a FakeBridge fails by. */
public enum Fault {
    /** As if nobody listened. */
    REFUSED(0),
    /** The request is done, and its answer lost. */
    LOST(0),
    /** Redis was not reached. */
    UNAVAILABLE(503),
    /** The queue is not made yet. */
    NO_LAYOUT(503),
    /** There were too many calls. */
    RATE_LIMITED(429),
    /** Redis is full. */
    FULL(507),
    /** The bridge does not know what became of it. */
    UNKNOWN(504),
    /** The bridge failed. */
    FAILED(500);

    final int status;

    Fault(int status) {
        this.status = status;
    }

    String code() {
        return name().toLowerCase(Locale.ROOT);
    }
}
