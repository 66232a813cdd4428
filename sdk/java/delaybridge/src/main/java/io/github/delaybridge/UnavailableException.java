package io.github.delaybridge;

/** No bridge was reached, or none reached Redis. Nothing was changed. */
public final class UnavailableException extends DelaybridgeException {
    UnavailableException(Problem problem) {
        super(problem);
    }
}
