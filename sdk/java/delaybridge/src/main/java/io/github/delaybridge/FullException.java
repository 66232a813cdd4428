package io.github.delaybridge;

/** Redis has reached its memory limit, or the queue its budget. Nothing was changed. */
public final class FullException extends DelaybridgeException {
    FullException(Problem problem) {
        super(problem);
    }
}
