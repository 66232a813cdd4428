package io.github.delaybridge.internal;

import io.github.delaybridge.InvalidException;
import io.github.delaybridge.Late;
import io.github.delaybridge.Message;
import io.github.delaybridge.Ref;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/** The limits of messages, which the bridge checks, too. The outbox checks them before it writes a row. */
public final class Limits {
    /** Bytes of id, key, topic, headers and body together. */
    public static final int MOST_SIZE = 960 << 10;

    private static final Pattern QUEUE = Pattern.compile("[a-z0-9][a-z0-9_-]{0,62}");
    private static final Pattern HEADER = Pattern.compile("[!-9;-~]{1,255}"); // Printable ASCII, no colon, no space.

    private Limits() {}

    /** Checks a queue's name. */
    public static void queue(String name) {
        if (name == null || !QUEUE.matcher(name).matches()) {
            throw invalid("queue", name, "1 to 63 of a-z 0-9 _ -, the first a letter or a digit");
        }
    }

    /** Checks id and key. */
    public static void identity(Ref ref) {
        name("id", ref.id(), 1);
        name("key", ref.key(), 0);
    }

    /** Checks all but the due time. Returns the headers as they are stored: with those of tags and late. */
    public static Map<String, String> message(Message m) {
        identity(m.ref());
        length("topic", m.topic(), 1, 255);
        if (hasControl(m.topic())) {
            throw invalid("topic", m.topic(), "must be UTF-8 without control characters");
        }
        Map<String, String> headers = headers(m);
        int body = m.body().length;
        int size = body + size(m.id()) + size(m.key()) + size(m.topic());
        for (Map.Entry<String, String> h : headers.entrySet()) {
            size += size(h.getKey()) + size(h.getValue());
        }
        if (size > MOST_SIZE) {
            String limit = "id, key, topic, headers and body have %d bytes together, allowed are %d";
            throw new InvalidException("body", "of " + body + " bytes: " + limit.formatted(size, MOST_SIZE));
        }
        return headers;
    }

    private static Map<String, String> headers(Message m) {
        if (m.headers().size() > 64) {
            throw invalid("header", m.headers().size() + " headers", "allowed are 64");
        }
        m.headers().forEach(Limits::header);
        Map<String, String> headers = new TreeMap<>(m.headers());
        String tags = joinedTags(m.tags());
        if (!tags.isEmpty()) {
            headers.put("delay-tags", tags);
        }
        if (m.late() != null) {
            headers.put("delay-late", late(m.late()));
        }
        return headers;
    }

    private static void header(String name, String value) {
        length("header", name, 1, 255);
        if (!HEADER.matcher(name).matches()) {
            throw invalid("header", name, "a name is printable ASCII without colon and space");
        }
        if (name.matches("(?i)(delay|nats)-.*") || name.equals("CC") || name.equals("BCC")) {
            throw invalid("header", name, "delay-*, nats-*, CC and BCC are reserved");
        }
        Text.utf8("header", value);
        if (hasControl(value.replace("\t", "")) || hasOuterSpace(value)) {
            throw invalid("header", name, "its value must be UTF-8 without control characters or outer spaces");
        }
    }

    /** The tags as a header has them: in the order of their bytes, each once. */
    public static String joinedTags(Collection<String> tags) {
        Map<byte[], String> sorted = new TreeMap<>(Arrays::compareUnsigned);
        for (String tag : tags) {
            length("tag", tag, 1, 64);
            if (tag.contains(",") || !tag.codePoints().allMatch(Limits::isPrintable)) {
                throw invalid("tag", tag, "must be printable UTF-8 without spaces and commas");
            }
            sorted.put(Text.utf8("tag", tag), tag);
        }
        if (sorted.size() > 8) {
            throw invalid("tag", sorted.size() + " tags", "allowed are 8");
        }
        return String.join(",", sorted.values());
    }

    private static boolean isPrintable(int c) {
        return switch (Character.getType(c)) {
            case Character.CONTROL,
                    Character.FORMAT,
                    Character.SURROGATE,
                    Character.PRIVATE_USE,
                    Character.UNASSIGNED,
                    Character.SPACE_SEPARATOR,
                    Character.LINE_SEPARATOR,
                    Character.PARAGRAPH_SEPARATOR -> false;
            default -> true;
        };
    }

    private static String late(Late late) {
        if (!late.then().matches("publish|dead|drop")) {
            throw invalid("late", late.then(), "allowed are publish, dead and drop");
        }
        Duration after = late.after() == null ? Duration.ZERO : late.after();
        if (!late.then().equals("publish") && after.compareTo(Duration.ofMillis(1)) < 0) {
            throw invalid("late", after.toString(), "allowed are 1ms and more");
        }
        return late.then() + " " + goDuration(after);
    }

    /** A duration as Go writes it: 1h0m0s, 1.5s, 250ms. */
    static String goDuration(Duration d) {
        if (d.isZero()) {
            return "0s";
        }
        if (d.compareTo(Duration.ofSeconds(1)) < 0) {
            return decimal(d.toNanos(), 6) + "ms"; // Nothing under 1 ms is allowed.
        }
        String text = decimal(d.toSecondsPart() * 1_000_000_000L + d.toNanosPart(), 9) + "s";
        if (d.toMinutes() > 0) {
            text = d.toMinutesPart() + "m" + text;
        }
        return d.toHours() > 0 ? d.toHours() + "h" + text : text;
    }

    private static String decimal(long nanos, int digits) {
        return BigDecimal.valueOf(nanos, digits).stripTrailingZeros().toPlainString();
    }

    private static void name(String field, String value, int least) {
        length(field, value, least, 255);
        if (hasControl(value) || hasOuterSpace(value)) {
            throw invalid(field, value, "must be UTF-8 without control characters or outer spaces");
        }
    }

    private static boolean hasOuterSpace(String text) {
        return !text.isEmpty() && (isSpace(text.codePointAt(0)) || isSpace(text.codePointBefore(text.length())));
    }

    private static boolean isSpace(int c) {
        return Character.isWhitespace(c) || Character.isSpaceChar(c); // The second has those that do not break.
    }

    private static int size(String text) {
        return Text.utf8("message", text).length;
    }

    private static void length(String field, String value, int least, int most) {
        int size = value == null ? 0 : Text.utf8(field, value).length;
        if (size < least || size > most) {
            throw invalid(field, value, size + " bytes, allowed are " + least + " to " + most);
        }
    }

    private static boolean hasControl(String text) {
        return text.chars().anyMatch(c -> c < ' ' || c >= 0x7F && c < 0xA0);
    }

    /** An error that names the field, the value and the limit. */
    public static InvalidException invalid(String field, String value, String limit) {
        String text = String.valueOf(value);
        String shown = text.length() <= 64 ? text : text.substring(0, 64) + "…";
        return new InvalidException(field, "\"" + shown + "\": " + limit);
    }
}
