package io.github.delaybridge;

/** The idempotency key was used for another request in the last 24 h. */
public final class KeyReusedException extends DelaybridgeException {
    KeyReusedException(Problem problem) {
        super(problem);
    }
}
