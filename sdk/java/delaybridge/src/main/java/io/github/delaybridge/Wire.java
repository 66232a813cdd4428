package io.github.delaybridge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.github.delaybridge.DelaybridgeException.Problem;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.internal.Text;
import java.io.ByteArrayOutputStream;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;

/** Calls as HTTP requests, and answers as results. Nothing here sends anything. */
final class Wire {
    /** How many messages one request may have. */
    static final int MOST_BATCH = 1000;

    static final byte[] OPENING = "{\"messages\":[".getBytes(StandardCharsets.US_ASCII);
    static final byte[] CLOSING = "]}".getBytes(StandardCharsets.US_ASCII);

    private static final Set<String> SETTLE_SCHEDULE = Set.of("duplicate", "too_late", "invalid", "key_reused");
    private static final Set<String> SETTLE_CANCEL = Set.of("too_late", "invalid");
    private static final Set<String> SETTLE_MOVE = Set.of("invalid");
    private static final Set<String> REST = Set.of("unavailable", "no_layout", "unknown", "failed");

    private Wire() {}

    static Prepared<ScheduleResult> schedule(String queue, Message m, String key) {
        return scheduling("/messages", queue, encode(m), key, reply -> scheduled(reply.data(), reply));
    }

    private static <T> Prepared<T> scheduling(
            String path, String queue, byte[] body, String key, Function<Reply, T> read) {
        return Prepared.whole("POST", queue(queue) + path, body, key(key), SETTLE_SCHEDULE, read);
    }

    /** encoded are the messages, each by encode. */
    static Prepared<List<BatchItem>> scheduleBatch(String queue, List<byte[]> encoded, String key) {
        if (encoded.isEmpty() || encoded.size() > MOST_BATCH) {
            String limit = "of " + encoded.size() + ": a batch has 1 to " + MOST_BATCH + "; use a Batcher";
            throw new InvalidException("messages", limit);
        }
        Prepared<List<BatchItem>> whole =
                scheduling("/messages:batch", queue, joined(encoded), key, reply -> items(reply, encoded.size()));
        return whole.withRest(items -> items.stream().anyMatch(Wire::isRest), Wire::unsettled);
    }

    private static byte[] joined(List<byte[]> encoded) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        all.writeBytes(OPENING);
        for (int i = 0; i < encoded.size(); i++) {
            if (i > 0) {
                all.write(',');
            }
            all.writeBytes(encoded.get(i));
        }
        all.writeBytes(CLOSING);
        return all.toByteArray();
    }

    private static List<BatchItem> items(Reply reply, int count) {
        JsonNode results = Reply.list(reply.data(), "results");
        if (results.size() != count) {
            throw new Reply.Unreadable("there is not one result for each message");
        }
        List<BatchItem> items = new ArrayList<>(count);
        results.forEach(r -> items.add(item(r, reply)));
        return List.copyOf(items);
    }

    private static BatchItem item(JsonNode r, Reply reply) {
        JsonNode error = r.path("error");
        if (error.isMissingNode()) {
            return new BatchItem(scheduled(r, reply), null);
        }
        Problem p = new Problem(
                Reply.text(error, "code"),
                Reply.text(error, "detail"),
                null,
                Reply.perhaps(error, "field"),
                Reply.perhaps(r, "id"),
                Reply.instant(r, "due_at"),
                null,
                null);
        return new BatchItem(null, DelaybridgeException.of(p));
    }

    private static boolean isRest(BatchItem i) {
        return i.error() != null && REST.contains(i.error().code());
    }

    private static List<BatchItem> unsettled(List<BatchItem> items) {
        return items.stream().map(i -> isRest(i) ? unknown(i.error()) : i).toList();
    }

    private static BatchItem unknown(DelaybridgeException e) {
        return new BatchItem(null, DelaybridgeException.of(e.problem().of("unknown", e.detail())));
    }

    static Prepared<ChangeResult> cancel(String queue, Ref ref) {
        return Prepared.whole("DELETE", message(queue, ref, "", Map.of()), null, null, SETTLE_CANCEL, Wire::changed);
    }

    static Prepared<ChangeResult> reschedule(String queue, Ref ref, Due due) {
        if (due == null) {
            throw new InvalidException("due", "is null: give Due.after or Due.at");
        }
        ObjectNode body = Json.object();
        put(body, due);
        return moving(message(queue, ref, ":reschedule", Map.of()), Text.utf8("due", Json.text(body)));
    }

    static Prepared<ChangeResult> publishNow(String queue, Ref ref) {
        return moving(message(queue, ref, ":publish-now", Map.of()), null);
    }

    private static Prepared<ChangeResult> moving(String target, byte[] body) {
        return Prepared.whole("POST", target, body, null, SETTLE_MOVE, Wire::changed);
    }

    static Prepared<StoredMessage> get(String queue, Ref ref, boolean withBody) {
        String target = message(queue, ref, "", withBody ? Map.of("body", "1") : Map.of());
        return Prepared.whole("GET", target, null, null, Set.of(), Wire::stored).withoutChange();
    }

    static Prepared<CancelCount> cancelAll(String queue, String tag, String key) {
        Map<String, String> query = new LinkedHashMap<>();
        query.put("tag", tag);
        query.put("key", key);
        String target = queue(queue) + "/messages" + query(query);
        return Prepared.whole("DELETE", target, null, null, SETTLE_MOVE, Wire::counted)
                .withLonger(Duration.ofSeconds(10));
    }

    /** The message as compact JSON, in which nothing is escaped that need not be. */
    static byte[] encode(Message m) {
        ObjectNode o = Json.object();
        put(o, "id", m.id());
        put(o, "key", m.key());
        o.put("topic", m.topic());
        byte[] body = m.body();
        String text = Text.textOf(body);
        put(o, "body", text == null ? "" : text);
        put(o, "body_base64", text == null ? Base64.getEncoder().encodeToString(body) : "");
        m.headers().forEach(o.withObjectProperty("headers")::put);
        m.tags().forEach(o.withArrayProperty("tags")::add);
        if (m.due() != null) {
            put(o, m.due());
        }
        put(o, "max_wait", m.maxWait());
        if (m.late() != null) {
            ObjectNode late = o.withObjectProperty("late");
            put(late, "after", m.late().after());
            late.put("then", m.late().then());
        }
        put(o, "conflict", m.conflict() == null ? "" : m.conflict().toString());
        for (String name : List.of("headers", "tags")) {
            if (o.path(name).isEmpty()) {
                o.remove(name);
            }
        }
        return Text.utf8("message", Json.text(o));
    }

    private static void put(ObjectNode o, Due due) {
        put(o, "in", due.after());
        put(o, "at", due.at() == null ? "" : Text.stamp(due.at()));
        put(o, "spread", due.spread());
    }

    private static void put(ObjectNode o, String name, Duration d) {
        put(o, name, d == null ? "" : Text.milliseconds(name, d) + "ms");
    }

    private static void put(ObjectNode o, String name, String value) {
        if (!value.isEmpty()) {
            o.put(name, value);
        }
    }

    /** The error of an answer that is not 2xx. */
    static DelaybridgeException problem(Reply reply, String key) {
        JsonNode d = reply.data();
        String code = Reply.perhaps(d, "code");
        String detail = Reply.perhaps(d, "detail");
        if (code == null) { // Not the bridge's own: a proxy's, for example.
            code = codeOf(reply.status());
            detail = "HTTP status " + reply.status();
        }
        String request = reply.headers().get("x-request-id");
        return DelaybridgeException.of(new Problem(
                code,
                String.valueOf(detail),
                reply.status(),
                Reply.perhaps(d, "field"),
                Reply.perhaps(d, "id"),
                Reply.instant(d, "due_at"),
                key,
                request));
    }

    private static String codeOf(int status) {
        if (status == 429) {
            return "rate_limited";
        }
        return status >= 500 ? "unknown" : "failed";
    }

    private static String key(String key) {
        if (key == null) {
            return UUID.randomUUID().toString();
        }
        if (key.isEmpty() || key.length() > 255 || !key.chars().allMatch(c -> c >= ' ' && c <= '~')) {
            throw new InvalidException("Idempotency-Key", "must have 1 to 255 printable ASCII characters");
        }
        return key;
    }

    private static String queue(String name) {
        return "/api/v1/queues/" + quoted(name);
    }

    private static String message(String queue, Ref ref, String verb, Map<String, String> more) {
        if (ref.id().isEmpty()) {
            throw new InvalidException("id", "is empty");
        }
        String name = quoted(ref.id());
        Map<String, String> query = new LinkedHashMap<>();
        if (name.equals(".") || name.equals("..")) { // HTTP clients and proxies take them for a way up.
            query.put("dots", String.valueOf(name.length()));
            name = "-";
        }
        query.put("key", ref.key());
        query.putAll(more);
        return queue(queue) + "/messages/" + name + verb + query(query);
    }

    private static String query(Map<String, String> values) {
        String text = values.entrySet().stream()
                .filter(v -> !v.getValue().isEmpty())
                .map(v -> v.getKey() + "=" + quoted(v.getValue()))
                .collect(Collectors.joining("&"));
        return text.isEmpty() ? "" : "?" + text;
    }

    /** Percent-encoded, but for what RFC 3986 calls unreserved. */
    private static String quoted(String text) {
        Text.utf8("id", text);
        String form = URLEncoder.encode(text, StandardCharsets.UTF_8);
        return form.replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
    }

    private static ScheduleResult scheduled(JsonNode d, Reply reply) {
        return new ScheduleResult(
                Reply.text(d, "id"),
                Reply.text(d, "key"),
                Reply.text(d, "status"),
                Reply.instant(d, "due_at"),
                d.path("not_durable").asBoolean(),
                reply.isReplayed());
    }

    private static ChangeResult changed(Reply reply) {
        JsonNode d = reply.data();
        boolean maybePublished = Reply.truth(d, "maybe_published");
        return new ChangeResult(Reply.text(d, "status"), maybePublished, d.path("not_durable").asBoolean());
    }

    private static CancelCount counted(Reply reply) {
        JsonNode d = reply.data();
        return new CancelCount(
                Reply.number(d, "done"),
                Reply.number(d, "maybe_published"),
                Reply.number(d, "too_late"),
                Reply.truth(d, "more"),
                d.path("not_durable").asBoolean());
    }

    private static StoredMessage stored(Reply reply) {
        JsonNode d = reply.data();
        Map<String, String> headers = new LinkedHashMap<>();
        d.path("headers").properties().forEach(h -> headers.put(h.getKey(), h.getValue().asText()));
        return new StoredMessage(
                Reply.text(d, "id"),
                Reply.text(d, "key"),
                Reply.text(d, "queue"),
                Reply.text(d, "topic"),
                Reply.text(d, "state"),
                Reply.instant(d, "due_at"),
                Reply.instant(d, "scheduled_at"),
                Reply.number(d, "attempt"),
                Reply.truth(d, "maybe_published"),
                StreamSupport.stream(Reply.list(d, "tags").spliterator(), false).map(JsonNode::asText).toList(),
                Map.copyOf(headers),
                body(d),
                Reply.perhaps(d, "reason"),
                Reply.perhaps(d, "route"),
                Reply.perhaps(d, "sealed_by"),
                d.has("end") ? end(d.path("end")) : null);
    }

    private static byte[] body(JsonNode d) {
        if (d.has("body")) {
            return Reply.text(d, "body").getBytes(StandardCharsets.UTF_8);
        }
        try {
            return d.has("body_base64") ? Base64.getDecoder().decode(Reply.text(d, "body_base64")) : null;
        } catch (IllegalArgumentException e) {
            throw new Reply.Unreadable("body_base64 is no base64");
        }
    }

    private static StoredMessage.End end(JsonNode d) {
        return new StoredMessage.End(
                Reply.text(d, "state"),
                Reply.instant(d, "at"),
                Reply.perhaps(d, "place"),
                Reply.perhaps(d, "topic"),
                d.path("attempt").asInt(),
                Reply.perhaps(d, "reason"));
    }
}
