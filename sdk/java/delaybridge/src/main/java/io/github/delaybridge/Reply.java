package io.github.delaybridge;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.delaybridge.internal.Json;
import java.io.IOException;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Map;
import java.util.function.Predicate;

/** An answer, whose data is an object without members if the body is no JSON object. */
record Reply(int status, Map<String, String> headers, JsonNode data) {
    /** An answer that is not the API's. */
    static final class Unreadable extends RuntimeException {
        Unreadable(String detail) {
            super(detail);
        }
    }

    static Reply of(Transport.Answer a) {
        JsonNode data = Json.object();
        try {
            JsonNode found = Json.read(a.body());
            data = found.isObject() ? found : data;
        } catch (IOException e) {
            // A proxy's, for example: its status tells, and no result can be read from it.
        }
        return new Reply(a.status(), a.headers(), data);
    }

    boolean isReplayed() {
        return "true".equals(headers.get("idempotent-replayed"));
    }

    /** Seconds, 10 at most; a date, which the bridge never sends, counts as nothing. */
    long retryAfter() {
        String text = headers.getOrDefault("retry-after", "");
        if (!text.matches("[0-9]+")) {
            return 0;
        }
        return text.length() > 2 ? 10 : Math.min(Long.parseLong(text), 10);
    }

    static String text(JsonNode object, String name) {
        return member(object, name, JsonNode::isTextual, "text").textValue();
    }

    static int number(JsonNode object, String name) {
        return member(object, name, JsonNode::isInt, "a number").intValue();
    }

    static boolean truth(JsonNode object, String name) {
        return member(object, name, JsonNode::isBoolean, "true or false").booleanValue();
    }

    static JsonNode list(JsonNode object, String name) {
        return member(object, name, JsonNode::isArray, "a list");
    }

    private static JsonNode member(
            JsonNode object, String name, Predicate<JsonNode> fits, String kind) {
        JsonNode found = object.path(name);
        if (!fits.test(found)) {
            throw new Unreadable(name + " is not " + kind);
        }
        return found;
    }

    /** Text that need not be there; then it is null. */
    static String perhaps(JsonNode object, String name) {
        return object.path(name).textValue();
    }

    /** An instant that need not be there; then it is null. */
    static Instant instant(JsonNode object, String name) {
        String text = perhaps(object, name);
        try {
            return text == null || text.isEmpty() ? null : Instant.parse(text);
        } catch (DateTimeParseException e) {
            throw new Unreadable(name + " is no instant");
        }
    }
}
