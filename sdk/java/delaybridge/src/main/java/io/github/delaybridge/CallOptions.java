package io.github.delaybridge;

import java.time.Duration;

/**
 * What one call may have; every part may be null.
 *
 * @param timeout for the call with all its repetitions, in place of the client's
 * @param idempotencyKey for callers that repeat calls that schedule themselves, for example after a restart: for 24 h,
 *     the same call under the same key has no second effect. 1 to 255 printable ASCII characters
 * @param traceparent the W3C trace context that the bridge and consumers continue
 */
public record CallOptions(Duration timeout, String idempotencyKey, String traceparent) {
    /** Nothing but the client's own. */
    public static final CallOptions NONE = new CallOptions(null, null, null);

    /** The same with a timeout. */
    public CallOptions withTimeout(Duration timeout) {
        return new CallOptions(timeout, idempotencyKey, traceparent);
    }

    /** The same with an idempotency key. */
    public CallOptions withIdempotencyKey(String key) {
        return new CallOptions(timeout, key, traceparent);
    }

    /** The same with a trace context. */
    public CallOptions withTraceparent(String traceparent) {
        return new CallOptions(timeout, idempotencyKey, traceparent);
    }
}
