package io.github.delaybridge;

/** The call was done, but replicas or the disk did not confirm it in time. */
public final class NotDurableException extends DelaybridgeException {
    NotDurableException(Problem problem) {
        super(problem);
    }
}
