package io.github.delaybridge;

import io.github.delaybridge.DelaybridgeException.Problem;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/**
 * One call from its beginning to its end: what it does next by the rules of sdk/vectors/README.md. Nothing here sends
 * anything or waits.
 *
 * <p>The client sends the request to {@link #url}, for at most {@link #timeLeft}, and tells what came of it by {@link
 * #answered} or {@link #lost}. Each returns how long to wait before the next request, or nothing: then {@link #result}
 * is there. Or it throws the call's error.
 */
final class Call<T> {
    private static final long FIRST_WAIT = Duration.ofMillis(100).toNanos();
    private static final long MOST_WAIT = Duration.ofSeconds(5).toNanos();
    private static final Set<Integer> FINAL = Set.of(501, 505, 507);
    private static final Set<String> CHANGED_NOTHING = Set.of("unavailable", "no_layout");
    private static final Set<String> TELLS_ITSELF = Set.of("unknown", "not_durable");

    private final Prepared<T> request;
    private final Servers servers;
    private final ClientClock clock;
    private final Set<Integer> asked = new HashSet<>();
    private final long begin;
    private final long timeout;
    private final long attemptTimeout;
    private int server;
    private int waits;
    private boolean isOpen;
    private boolean hasPart;
    private boolean hasRenewed;
    private T result;

    /** The servers of a client, and the one that answered last. */
    record Servers(List<String> urls, AtomicInteger current) {}

    Call(Prepared<T> request, Servers servers, Duration timeout, Duration attemptTimeout, ClientClock clock) {
        this.request = request;
        this.servers = servers;
        this.clock = clock;
        this.server = servers.current.get();
        this.begin = clock.nanos();
        this.timeout = timeout.toNanos();
        this.attemptTimeout = attemptTimeout.plus(request.longer()).toNanos();
    }

    String url() {
        return servers.urls.get(server) + request.target();
    }

    Duration timeLeft() {
        return Duration.ofNanos(Math.max(Math.min(attemptTimeout, left()), 1_000_000));
    }

    T result() {
        return result;
    }

    /** There was no answer. wasSent: the request may have had an effect. */
    Optional<Duration> lost(String detail, boolean wasSent) {
        open(wasSent);
        return again(unavailable(detail), 0, false);
    }

    /** The caller's thread was interrupted, so there is no next request. wasSent as in lost. */
    Optional<Duration> interrupted(boolean wasSent) {
        open(wasSent);
        return giveUp(unavailable("the thread was interrupted"));
    }

    /** There was an answer. renew tells whether there is another token now. */
    Optional<Duration> answered(Transport.Answer answer, BooleanSupplier renew) {
        Reply reply = Reply.of(answer);
        try {
            return reply.status() / 100 == 2 ? done(reply) : refused(reply, Wire.problem(reply, request.key()), renew);
        } catch (Reply.Unreadable e) {
            return lost("the answer cannot be read: " + e.getMessage(), true);
        }
    }

    private Optional<Duration> done(Reply reply) {
        result = request.read().apply(reply);
        isOpen = false;
        if (request.hasRest().test(result)) {
            hasPart = true;
            return again(unavailable("done in part"), reply.retryAfter(), false);
        }
        servers.current.set(server);
        return Optional.empty();
    }

    private Optional<Duration> refused(Reply reply, DelaybridgeException error, BooleanSupplier renew) {
        if (reply.status() == 429) {
            return again(error, reply.retryAfter(), true);
        }
        if (error.code().equals("key_in_use")) {
            return again(error, 1, true);
        }
        if (reply.status() >= 500 && !FINAL.contains(reply.status())) {
            open(!CHANGED_NOTHING.contains(error.code()));
            return again(error, reply.retryAfter(), false);
        }
        if (reply.status() == 401 && !hasRenewed && renew.getAsBoolean()) {
            hasRenewed = true;
            return Optional.of(Duration.ZERO);
        }
        servers.current.set(server);
        if (hasPart) {
            return giveUp(error);
        }
        throw isOpen && !request.settledBy().contains(error.code()) ? unknown(error) : error;
    }

    private void open(boolean mayHaveEffect) {
        isOpen |= mayHaveEffect && request.isChange();
    }

    /** Chooses the server that is asked next, and the wait before. */
    private Optional<Duration> again(DelaybridgeException error, long retryAfter, boolean stays) {
        if (!stays) {
            asked.add(server);
            server = (server + 1) % servers.urls.size();
            if (!asked.contains(server)) {
                return left() > 0 ? Optional.of(Duration.ZERO) : giveUp(error);
            }
        }
        asked.clear();
        double most = Math.min(MOST_WAIT, FIRST_WAIT * Math.pow(2, waits++));
        Duration wait = Duration.ofNanos((long) (clock.random() * most)).plusSeconds(retryAfter);
        return wait.toNanos() < left() ? Optional.of(wait) : giveUp(error);
    }

    /** Ends the call, without another request. */
    private Optional<Duration> giveUp(DelaybridgeException error) {
        if (hasPart) {
            result = isOpen ? request.unsettled().apply(result) : result;
            return Optional.empty();
        }
        if (isOpen && !TELLS_ITSELF.contains(error.code())) {
            throw unknown(error);
        }
        if (!request.isChange() && error.code().equals("unknown")) {
            throw DelaybridgeException.of(error.problem().of("unavailable", error.detail()));
        }
        throw error;
    }

    private long left() {
        return timeout - (clock.nanos() - begin);
    }

    private DelaybridgeException unavailable(String detail) {
        return new UnavailableException(problem("unavailable", detail));
    }

    private DelaybridgeException unknown(DelaybridgeException last) {
        String detail = "the answer to a request was lost, and no other told what came of it; the last error: ";
        DelaybridgeException e = new UnknownException(problem("unknown", detail + last.getMessage()));
        e.initCause(last);
        return e;
    }

    private Problem problem(String code, String detail) {
        return new Problem(code, detail, null, null, null, null, request.key(), null);
    }
}
