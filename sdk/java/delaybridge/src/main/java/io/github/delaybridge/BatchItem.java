package io.github.delaybridge;

/**
 * The outcome of one message of a batch: a result, or the error that a call for it alone would throw.
 *
 * @param result null if there is an error
 * @param error null if there is a result
 */
public record BatchItem(ScheduleResult result, DelaybridgeException error) {
    /** Returns the result, or throws the error. */
    public ScheduleResult get() {
        if (error != null) {
            throw error;
        }
        return result;
    }
}
