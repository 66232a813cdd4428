package io.github.delaybridge;

/** The bridge had too many calls for as long as this one could wait. Nothing was changed. */
public final class RateLimitedException extends DelaybridgeException {
    RateLimitedException(Problem problem) {
        super(problem);
    }
}
