package io.github.delaybridge.testing;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.delaybridge.Conflict;
import io.github.delaybridge.Due;
import io.github.delaybridge.InvalidException;
import io.github.delaybridge.Late;
import io.github.delaybridge.Message;
import io.github.delaybridge.Transport;
import io.github.delaybridge.internal.Json;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Base64;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A request, as the fake bridge understands it.
 *
 * @param queue null if the path is none of the API's
 * @param id the message's, or null
 * @param verb what follows a colon in the path, or empty
 */
record Incoming(
        String method, String queue, String id, String verb, Map<String, String> query, String token, String key, byte[] body) {
    private static final Pattern PATH =
            Pattern.compile("/api/v1/queues/([^/:]+)/messages(?::(batch)|/([^/:]+)(?::(reschedule|publish-now))?)?");
    private static final Pattern DURATION = Pattern.compile("(\\d{1,15})(ms|s|m|h|d)");
    private static final Map<String, Integer> UNITS =
            Map.of("ms", 1, "s", 1000, "m", 60_000, "h", 3_600_000, "d", 86_400_000);

    static Incoming of(Transport.Request r) {
        Matcher path = PATH.matcher(r.uri().getRawPath());
        boolean isKnown = path.matches();
        Map<String, String> query = query(r.uri().getRawQuery());
        String id = isKnown && path.group(3) != null ? decoded(path.group(3)) : null;
        if ("-".equals(id) && query.containsKey("dots")) {
            id = ".".repeat(Integer.parseInt(query.get("dots")));
        }
        String verb = !isKnown ? "" : path.group(2) != null ? path.group(2) : path.group(4);
        return new Incoming(
                r.method(),
                isKnown ? decoded(path.group(1)) : null,
                id,
                verb == null ? "" : verb,
                query,
                r.headers().getOrDefault("Authorization", "").replaceFirst("^Bearer ", ""),
                r.headers().get("Idempotency-Key"),
                r.body());
    }

    private static Map<String, String> query(String raw) {
        Map<String, String> values = new HashMap<>();
        for (String part : raw == null ? new String[0] : raw.split("&")) {
            String[] pair = part.split("=", 2);
            values.put(decoded(pair[0]), decoded(pair[1]));
        }
        return values;
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    JsonNode json() {
        try {
            return Json.read(body);
        } catch (IOException e) {
            throw new InvalidException("body", "is no JSON");
        }
    }

    /** The due time of an object's members. */
    static Due due(JsonNode m) {
        Duration after = duration("in", m.path("in"));
        Instant at = instant(m.path("at"));
        if ((after == null) == (at == null)) {
            throw new InvalidException("in", "give in or at, and not both");
        }
        return new Due(after, at, duration("spread", m.path("spread")));
    }

    private static Instant instant(JsonNode value) {
        try {
            return value.isMissingNode() ? null : Instant.parse(value.asText());
        } catch (DateTimeParseException e) {
            throw new InvalidException("at", "\"" + value.asText() + "\": must be RFC 3339");
        }
    }

    private static Duration duration(String field, JsonNode value) {
        if (value.isMissingNode()) {
            return null;
        }
        Matcher found = DURATION.matcher(value.asText());
        if (!found.matches()) {
            String limit = "the fake reads one number and ms, s, m, h or d";
            throw new InvalidException(field, "\"" + value.asText() + "\": " + limit);
        }
        return Duration.ofMillis(Math.multiplyExact(Long.parseLong(found.group(1)), UNITS.get(found.group(2))));
    }

    /** The message of an object's members. */
    static Message message(JsonNode m, String id) {
        Message.Builder b = Message.builder(m.path("topic").asText()).id(id).key(m.path("key").asText()).due(due(m));
        if (m.has("body_base64")) {
            b.body(Base64.getDecoder().decode(m.path("body_base64").asText()));
        } else {
            b.body(m.path("body").asText());
        }
        m.path("headers").properties().forEach(h -> b.header(h.getKey(), h.getValue().asText()));
        String[] tags = new String[m.path("tags").size()];
        for (int i = 0; i < tags.length; i++) {
            tags[i] = m.path("tags").path(i).asText();
        }
        JsonNode late = m.path("late");
        if (!late.isMissingNode()) {
            b.late(new Late(late.path("then").asText(), duration("late.after", late.path("after"))));
        }
        if (m.has("conflict")) {
            b.conflict(conflict(m.path("conflict").asText()));
        }
        return b.tags(tags).maxWait(duration("max_wait", m.path("max_wait"))).build();
    }

    private static Conflict conflict(String name) {
        try {
            return Conflict.valueOf(name.toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            throw new InvalidException("conflict", "\"" + name + "\": allowed are reject, keep and replace");
        }
    }
}
