package io.github.delaybridge.internal;

import io.github.delaybridge.InvalidException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;

/** Texts, durations and instants in the forms of the API. */
public final class Text {
    private static final DateTimeFormatter STAMP =
            DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

    private Text() {}

    /** The text as UTF-8. Throws InvalidException for half a surrogate pair, which UTF-8 does not have. */
    public static byte[] utf8(String field, String text) {
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException e) {
            throw new InvalidException(field, "has characters that UTF-8 does not have");
        }
    }

    /** The text that these bytes are; null if they are no UTF-8. */
    public static String textOf(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            return null;
        }
    }

    /** A duration in whole milliseconds, rounded up; 0 if it is less. Throws InvalidException beyond 292 million years. */
    public static long milliseconds(String field, Duration d) {
        try {
            long whole = d.toMillis();
            return Math.max(whole + (d.getNano() % 1_000_000 == 0 ? 0 : 1), 0);
        } catch (ArithmeticException e) {
            throw new InvalidException(field, d + ": too long");
        }
    }

    /** An instant in milliseconds since 1970, rounded up. */
    public static long milliseconds(Instant at) {
        try {
            return at.toEpochMilli() + (at.getNano() % 1_000_000 == 0 ? 0 : 1);
        } catch (ArithmeticException e) {
            throw new InvalidException("due", at + ": must be from 1970 to 9999");
        }
    }

    /** An instant as the API writes it: in UTC with milliseconds, rounded up. */
    public static String stamp(Instant at) {
        return STAMP.format(Instant.ofEpochMilli(milliseconds(at)));
    }
}
