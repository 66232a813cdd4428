package io.github.delaybridge.outbox;

import io.github.delaybridge.Due;
import io.github.delaybridge.InvalidException;
import io.github.delaybridge.Message;
import io.github.delaybridge.Ref;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.internal.Limits;
import io.github.delaybridge.internal.Spread;
import io.github.delaybridge.internal.Text;
import java.security.SecureRandom;
import java.util.Map;

/** A message as it is stored. headers are JSON, or null. */
record Row(Ref ref, String topic, String headers, byte[] body, When due) {
    private static final long LATEST = 253_402_300_800_000L; // The end of the year 9999.
    private static final String DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    private static final SecureRandom RANDOM = new SecureRandom();

    /** A due time in milliseconds: since 1970, or from now by the database's clock. */
    record When(long ms, boolean isRelative) {}

    /** Checks a message, and gives it an id if it has none. */
    static Row of(Message message) {
        if (message.maxWait() != null) {
            throw Limits.invalid("max_wait", message.maxWait().toString(), "the outbox has none; schedule by Client");
        }
        Message m = message.id().isEmpty() ? message.toBuilder().id(newId()).build() : message;
        Map<String, String> headers = Limits.message(m);
        String json = headers.isEmpty() ? null : Json.text(headers);
        return new Row(m.ref(), m.topic(), json, m.body(), when(m.ref(), m.due()));
    }

    /** When a message of that identity is due, with its share of the spread. */
    static When when(Ref ref, Due due) {
        if (due == null) {
            throw new InvalidException("due", "is null: give Due.after or Due.at");
        }
        // Parts of a millisecond of a spread do not count.
        long over = due.spread() == null || due.spread().isNegative() ? 0 : due.spread().toMillis();
        long more = Spread.share(ref.key(), ref.id(), over);
        if (due.after() != null) {
            return new When(checked(Text.milliseconds("due", due.after()) + more, due), true);
        }
        return new When(checked(Text.milliseconds(due.at()) + more, due), false);
    }

    private static long checked(long ms, Due due) {
        if (ms < 0 || ms >= LATEST) {
            throw Limits.invalid("due", due.toString(), "must be from 1970 to 9999");
        }
        return ms;
    }

    /** A ULID: 48 bits of milliseconds, and 80 by chance. */
    private static String newId() {
        StringBuilder id = new StringBuilder(26);
        long now = System.currentTimeMillis();
        for (int shift = 45; shift >= 0; shift -= 5) {
            id.append(DIGITS.charAt((int) (now >>> shift & 31)));
        }
        RANDOM.ints(16, 0, 32).forEach(i -> id.append(DIGITS.charAt(i)));
        return id.toString();
    }
}
