package io.github.delaybridge;

/** A message of that id and key waits, is being published, or is in the dead letters. Nothing was changed. */
public final class DuplicateException extends DelaybridgeException {
    /**
     * For the outbox, which finds duplicates by itself.
     *
     * @param id the message's
     * @param detail text for people
     */
    public DuplicateException(String id, String detail) {
        super(new Problem("duplicate", detail, null, null, id, null, null, null));
    }

    DuplicateException(Problem problem) {
        super(problem);
    }
}
