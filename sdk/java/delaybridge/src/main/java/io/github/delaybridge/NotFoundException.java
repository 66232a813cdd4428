package io.github.delaybridge;

/** There is no such message: it was published, cancelled or never scheduled. Or there is no such queue. */
public final class NotFoundException extends DelaybridgeException {
    NotFoundException(Problem problem) {
        super(problem);
    }
}
