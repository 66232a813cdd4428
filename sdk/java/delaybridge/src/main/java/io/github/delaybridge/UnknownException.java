package io.github.delaybridge;

/**
 * An answer was lost, so it is unknown whether the call took effect.
 *
 * <p>A call that scheduled can be made again under its {@link #idempotencyKey()}, within 24 h: it has no second effect,
 * and tells what became of the first one.
 */
public final class UnknownException extends DelaybridgeException {
    UnknownException(Problem problem) {
        super(problem);
    }
}
