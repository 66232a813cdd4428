package io.github.delaybridge;

/** The message is being published right now. Nothing was changed. */
public final class TooLateException extends DelaybridgeException {
    TooLateException(Problem problem) {
        super(problem);
    }
}
