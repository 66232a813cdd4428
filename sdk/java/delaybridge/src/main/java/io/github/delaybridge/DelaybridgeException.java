package io.github.delaybridge;

import java.io.Serializable;
import java.time.Instant;

/** The base of all errors of this package: one class for each code of the API. */
public class DelaybridgeException extends RuntimeException {
    private final Problem problem;

    /** What is known of an error. All but code and detail may be null. */
    record Problem(
            String code,
            String detail,
            Integer status,
            String field,
            String id,
            Instant dueAt,
            String idempotencyKey,
            String requestId)
            implements Serializable {
        Problem of(String code, String detail) {
            return new Problem(code, detail, status, field, id, dueAt, idempotencyKey, requestId);
        }
    }

    DelaybridgeException(Problem problem) {
        super(problem.code + ": " + problem.detail);
        this.problem = problem;
    }

    /** The error of a code; one that this version does not know is a DelaybridgeException with that code. */
    static DelaybridgeException of(Problem p) {
        return switch (p.code) {
            case "invalid" -> new InvalidException(p);
            case "unauthorized" -> new UnauthorizedException(p);
            case "forbidden" -> new ForbiddenException(p);
            case "read_only" -> new ReadOnlyException(p);
            case "not_found" -> new NotFoundException(p);
            case "duplicate" -> new DuplicateException(p);
            case "too_late" -> new TooLateException(p);
            case "key_reused" -> new KeyReusedException(p);
            case "key_in_use" -> new KeyInUseException(p);
            case "rate_limited" -> new RateLimitedException(p);
            case "full" -> new FullException(p);
            case "no_layout" -> new NoLayoutException(p);
            case "unavailable" -> new UnavailableException(p);
            case "unknown" -> new UnknownException(p);
            case "not_durable" -> new NotDurableException(p);
            case "failed" -> new FailedException(p);
            default -> new DelaybridgeException(p);
        };
    }

    Problem problem() {
        return problem;
    }

    /** For programs, and stable: {@code duplicate}, {@code too_late}, … */
    public String code() {
        return problem.code;
    }

    /** For people. */
    public String detail() {
        return problem.detail;
    }

    /** The HTTP status; null if this library itself made the error. */
    public Integer status() {
        return problem.status;
    }

    /** What is invalid, or null. */
    public String field() {
        return problem.field;
    }

    /** The message's id, or null. */
    public String id() {
        return problem.id;
    }

    /** The due time of the message that is there, or null. */
    public Instant dueAt() {
        return problem.dueAt;
    }

    /** The key of a call that scheduled, or null: the same call under it has no second effect. */
    public String idempotencyKey() {
        return problem.idempotencyKey;
    }

    /** The name of the request in the bridge's log, or null. */
    public String requestId() {
        return problem.requestId;
    }
}
