package io.github.delaybridge;

/** The bridge failed in a way that it does not know. */
public final class FailedException extends DelaybridgeException {
    FailedException(Problem problem) {
        super(problem);
    }
}
