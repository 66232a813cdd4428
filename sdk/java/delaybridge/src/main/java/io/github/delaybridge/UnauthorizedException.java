package io.github.delaybridge;

/** The bridge does not know the token. */
public final class UnauthorizedException extends DelaybridgeException {
    UnauthorizedException(Problem problem) {
        super(problem);
    }
}
