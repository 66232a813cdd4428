package io.github.delaybridge;

/** Something is outside a limit; {@link #field()} says what. Nothing was changed. */
public final class InvalidException extends DelaybridgeException {
    /**
     * For what is found before anything is sent.
     *
     * @param field what is outside a limit
     * @param detail its value and the limit
     */
    public InvalidException(String field, String detail) {
        super(new Problem("invalid", field + " " + detail, null, field, null, null, null, null));
    }

    InvalidException(Problem problem) {
        super(problem);
    }
}
