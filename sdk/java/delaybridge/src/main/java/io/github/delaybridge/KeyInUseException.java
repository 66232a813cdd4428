package io.github.delaybridge;

/** Another process is making the first request under this idempotency key. */
public final class KeyInUseException extends DelaybridgeException {
    KeyInUseException(Problem problem) {
        super(problem);
    }
}
