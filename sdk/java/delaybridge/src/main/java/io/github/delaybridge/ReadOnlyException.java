package io.github.delaybridge;

/** The bridge refuses every change ({@code admin.read_only}). */
public final class ReadOnlyException extends DelaybridgeException {
    ReadOnlyException(Problem problem) {
        super(problem);
    }
}
