package io.github.delaybridge;

import java.time.Duration;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;

/**
 * A call as a request, and how to read its answer.
 *
 * @param body null if there is none
 * @param key the idempotency key of calls that schedule, or null
 * @param isChange whether it can have an effect
 * @param settledBy the codes that, after a request whose answer was lost, tell that it had no effect either
 * @param hasRest whether a part of the result is to be done by the same request again
 * @param unsettled the result, if the last repetition for its rest was lost
 * @param longer what the server may take beyond what others take
 */
record Prepared<T>(
        String method,
        String target,
        byte[] body,
        String key,
        boolean isChange,
        Set<String> settledBy,
        Duration longer,
        Function<Reply, T> read,
        Predicate<T> hasRest,
        UnaryOperator<T> unsettled) {

    /** A call that is asked again as a whole, or not at all. */
    static <T> Prepared<T> whole(
            String method, String target, byte[] body, String key, Set<String> settledBy, Function<Reply, T> read) {
        return new Prepared<>(
                method, target, body, key, true, settledBy, Duration.ZERO, read, r -> false, UnaryOperator.identity());
    }

    Prepared<T> withoutChange() {
        return new Prepared<>(method, target, body, key, false, settledBy, longer, read, hasRest, unsettled);
    }

    Prepared<T> withLonger(Duration longer) {
        return new Prepared<>(method, target, body, key, isChange, settledBy, longer, read, hasRest, unsettled);
    }

    Prepared<T> withRest(Predicate<T> hasRest, UnaryOperator<T> unsettled) {
        return new Prepared<>(method, target, body, key, isChange, settledBy, longer, read, hasRest, unsettled);
    }
}
