package io.github.delaybridge;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.internal.Text;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** The vectors, and their neutral form in the words of this SDK. */
final class Neutral {
    private static final Path VECTORS = Path.of("..", "..", "vectors");

    private Neutral() {}

    /** A vector, with its name for JUnit. */
    record Vector(JsonNode v) {
        @Override
        public String toString() {
            return v.path("name").asText();
        }
    }

    static Stream<Vector> read(String file) {
        JsonNode all = json(file).iterator().next();
        assertThat(all).isNotEmpty();
        return stream(all).map(Vector::new);
    }

    private static JsonNode json(String file) {
        try {
            return Json.read(Files.readAllBytes(VECTORS.resolve(file)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static Stream<JsonNode> stream(JsonNode list) {
        return StreamSupport.stream(list.spliterator(), false);
    }

    /** Puts values for placeholders, but for $KEY. */
    static JsonNode filled(JsonNode value) {
        String text = Json.text(value)
                .replace("\"$ID\"", "\"01JFXQ7Z8M3V5K2N4P6R8T0W1Y\"")
                .replace("\"$DUE\"", "\"2031-01-31T09:00:00.000Z\"")
                .replace("\"$THEN\"", "\"2031-01-30T09:00:00.000Z\"")
                .replace("\"$DETAIL\"", "\"why\"");
        return parsed(text.getBytes(StandardCharsets.UTF_8));
    }

    static JsonNode parsed(byte[] text) {
        try {
            return Json.read(text);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static Duration duration(JsonNode c, String name) {
        if (!c.has(name)) {
            return null;
        }
        return Duration.ofNanos(new BigDecimal(c.path(name).asText()).movePointRight(6).longValueExact());
    }

    /** The due time of a call, or null. */
    static Due due(JsonNode c) {
        if (!c.has("in_ms") && !c.has("at")) {
            return null;
        }
        Instant at = c.has("at") ? OffsetDateTime.parse(c.path("at").asText()).toInstant() : null;
        return new Due(duration(c, "in_ms"), at, duration(c, "spread_ms"));
    }

    static Message message(JsonNode c) {
        Message.Builder b = Message.builder(c.path("topic").asText()).due(due(c));
        b.id(c.path("id").asText()).key(c.path("key").asText()).maxWait(duration(c, "max_wait_ms"));
        if (c.has("bytes_base64")) {
            b.body(Base64.getDecoder().decode(c.path("bytes_base64").asText()));
        } else {
            b.body(c.path("body").asText());
        }
        c.path("headers").properties().forEach(h -> b.header(h.getKey(), h.getValue().asText()));
        b.tags(stream(c.path("tags")).map(JsonNode::asText).toArray(String[]::new));
        if (c.has("late")) {
            b.late(new Late(c.path("late").path("then").asText(), duration(c.path("late"), "after_ms")));
        }
        if (c.has("conflict")) {
            b.conflict(Conflict.valueOf(c.path("conflict").asText().toUpperCase(Locale.ROOT)));
        }
        return b.build();
    }

    /** Makes a call of a vector, and returns its result or its error. */
    static Object call(Client any, JsonNode c) {
        Client client = any.withQueue(c.path("queue").asText());
        Ref ref = new Ref(c.path("id").asText(), c.path("key").asText());
        CallOptions options = CallOptions.NONE
                .withIdempotencyKey(c.path("idempotency_key").textValue())
                .withTraceparent(c.path("traceparent").textValue());
        try {
            return switch (c.path("do").asText()) {
                case "schedule" -> client.schedule(message(c), options);
                case "schedule_batch" -> client.scheduleBatch(
                        stream(c.path("messages")).map(Neutral::message).toList(), options);
                case "cancel" -> client.cancel(ref, options);
                case "reschedule" -> client.reschedule(ref, due(c), options);
                case "publish_now" -> client.publishNow(ref, options);
                case "get" -> client.get(ref, c.path("with_body").asBoolean(), options);
                case "cancel_all" -> client.cancelAll(c.path("tag").asText(), c.path("key").asText(), options);
                default -> throw new AssertionError(c);
            };
        } catch (DelaybridgeException e) {
            return e;
        }
    }

    /** Compares what a caller got with the vector's result or error. */
    static void same(Object got, JsonNode v) {
        if (v.has("error")) {
            sameError(got, filled(v.path("error")));
            return;
        }
        assertThat(got).isNotInstanceOf(Exception.class);
        JsonNode want = filled(v.path("result"));
        if (want.isArray()) {
            List<?> items = (List<?>) got;
            assertThat(items).hasSize(want.size());
            for (int i = 0; i < items.size(); i++) {
                sameItem((BatchItem) items.get(i), want.path(i));
            }
        } else {
            assertThat(plain(got)).isEqualTo(want);
        }
    }

    static void sameItem(BatchItem got, JsonNode want) {
        if (want.has("error")) {
            sameError(got.error(), want.path("error"));
        } else {
            assertThat(got.error()).isNull();
            assertThat(plain(got.result())).isEqualTo(want);
        }
    }

    static void sameError(Object got, JsonNode want) {
        assertThat(got).isInstanceOf(DelaybridgeException.class);
        DelaybridgeException e = (DelaybridgeException) got;
        var found = Json.object().put("code", e.code());
        put(found, "status", e.status());
        put(found, "field", e.field());
        put(found, "id", e.id());
        put(found, "due_at", e.dueAt() == null ? null : Text.stamp(e.dueAt()));
        assertThat((JsonNode) found).isEqualTo(want);
        assertThat(e.getClass().getSimpleName()).isEqualTo(camel(e.code()) + "Exception");
        assertThat(e.detail()).isNotEmpty();
    }

    private static String camel(String code) {
        StringBuilder name = new StringBuilder();
        for (String word : code.split("_")) {
            name.append(word.substring(0, 1).toUpperCase(Locale.ROOT)).append(word.substring(1));
        }
        return name.toString();
    }

    /** A record as the vectors write it: in snake case, without what is not there. */
    private static JsonNode plain(Object record) {
        var found = Json.object();
        for (var part : record.getClass().getRecordComponents()) {
            Object value;
            try {
                value = part.getAccessor().invoke(record);
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
            String name = part.getName().replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
            if (value instanceof byte[] body) {
                found.put("bytes_base64", Base64.getEncoder().encodeToString(body));
            } else if (value instanceof StoredMessage.End end) {
                found.set(name, plain(end));
            } else {
                put(found, name, value instanceof Instant at ? Text.stamp(at) : value);
            }
        }
        return found;
    }

    private static void put(ObjectNode o, String name, Object value) {
        if (value != null) {
            o.set(name, parsed(Json.text(value).getBytes(StandardCharsets.UTF_8)));
        }
    }
}
