package io.github.delaybridge;

/** The queue does not exist in Redis yet. Nothing was changed. */
public final class NoLayoutException extends DelaybridgeException {
    NoLayoutException(Problem problem) {
        super(problem);
    }
}
