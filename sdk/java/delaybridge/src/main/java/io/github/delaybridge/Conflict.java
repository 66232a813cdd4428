package io.github.delaybridge;

import java.util.Locale;

/** What to do if a message of that id and key is there. */
public enum Conflict {
    /** DuplicateException, the default. */
    REJECT,
    /** Keep the message that is there. */
    KEEP,
    /** Replace it. */
    REPLACE;

    /** As the API writes it. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
