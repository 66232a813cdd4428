package io.github.delaybridge;

/** The token may not do this. */
public final class ForbiddenException extends DelaybridgeException {
    ForbiddenException(Problem problem) {
        super(problem);
    }
}
