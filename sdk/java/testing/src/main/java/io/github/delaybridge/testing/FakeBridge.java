package io.github.delaybridge.testing;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.github.delaybridge.Client;
import io.github.delaybridge.ClientClock;
import io.github.delaybridge.Conflict;
import io.github.delaybridge.Due;
import io.github.delaybridge.InvalidException;
import io.github.delaybridge.Message;
import io.github.delaybridge.Ref;
import io.github.delaybridge.Transport;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.internal.Limits;
import io.github.delaybridge.internal.Spread;
import io.github.delaybridge.internal.Text;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * A bridge in memory, with a clock that the test moves.
 *
 * <pre>{@code
 * FakeBridge bridge = new FakeBridge("orders");
 * Shop shop = new Shop(bridge.client("orders"));
 * shop.place(42);
 * bridge.advance(Duration.ofMinutes(30));
 * assertEquals("order.timeout", bridge.published().get(0).topic());
 * }</pre>
 *
 * <p>The clients are real ones; only the way to the bridge is replaced. The fake answers as a bridge does: cancels and
 * reschedules tell the truth, limits are checked, idempotency keys work. The clock stands still until it is moved. It is
 * safe for threads. It has no jobs, lists, histories, dead letters, retries and lateness; {@link DevBridge} has them.
 */
public final class FakeBridge implements Transport {
    private static final Duration MOST_DELAY = Duration.ofDays(10 * 366);
    private static final Duration REMEMBERED = Duration.ofHours(24);
    private static final Comparator<Stored> IN_DUE_ORDER =
            Comparator.comparing((Stored s) -> s.dueAt).thenComparing(s -> s.number);
    private static final Map<String, Integer> STATUSES = Map.of(
            "invalid", 400, "unauthorized", 401, "forbidden", 403, "not_found", 404, "duplicate", 409, "too_late", 409,
            "key_reused", 422);
    private static final Map<Integer, String> TITLES = Map.ofEntries(
            Map.entry(400, "Bad Request"),
            Map.entry(401, "Unauthorized"),
            Map.entry(403, "Forbidden"),
            Map.entry(404, "Not Found"),
            Map.entry(409, "Conflict"),
            Map.entry(422, "Unprocessable Entity"),
            Map.entry(429, "Too Many Requests"),
            Map.entry(500, "Internal Server Error"),
            Map.entry(503, "Service Unavailable"),
            Map.entry(504, "Gateway Timeout"),
            Map.entry(507, "Insufficient Storage"));

    private final Map<String, Map<Ref, Stored>> queues = new LinkedHashMap<>();
    private final Map<List<String>, Remembered> answers = new HashMap<>();
    private final Map<String, Consumer<Published>> handlers = new HashMap<>();
    private final Deque<Fault> faults = new ArrayDeque<>();
    private final List<Published> published = new ArrayList<>();
    private final Instant start;
    private Map<String, String> tokens;
    private Instant now;
    private int numbers;

    private static final class Stored {
        final Message message;
        final Map<String, String> headers;
        final Instant scheduledAt;
        final int number;
        Instant dueAt;
        Instant firstAt;
        boolean isInFlight;

        Stored(Message message, Map<String, String> headers, Instant scheduledAt, int number, Instant dueAt) {
            this.message = message;
            this.headers = headers;
            this.scheduledAt = scheduledAt;
            this.number = number;
            this.dueAt = dueAt;
        }
    }

    private record Remembered(JsonNode request, Answer answer, Instant until) {}

    /** What a request is refused by. */
    private static final class Refusal extends RuntimeException {
        final int status;
        final ObjectNode error;

        Refusal(int status, String code, String detail, String field) {
            this.status = status;
            error = Json.object().put("code", code).put("detail", detail);
            if (field != null) {
                error.put("field", field);
            }
        }

        static Refusal of(String code, String detail) {
            return new Refusal(STATUSES.get(code), code, detail, null);
        }

        static Refusal of(InvalidException e) {
            String field = e.field().equals("header") || e.field().equals("tag") ? e.field() + "s" : e.field();
            return new Refusal(400, "invalid", e.detail(), field);
        }
    }

    /** A bridge of these queues, whose clock begins with the real time. */
    public FakeBridge(String... queues) {
        this(Instant.now(), queues);
    }

    /** A bridge of these queues, whose clock begins at an instant. */
    public FakeBridge(Instant start, String... queues) {
        this.start = Instant.ofEpochMilli(start.toEpochMilli());
        now = this.start;
        for (String name : queues) {
            Limits.queue(name);
            this.queues.put(name, new LinkedHashMap<>());
        }
    }

    /** A client of the queue. Its waits before repetitions move the clock. */
    public Client client(String queue) {
        return clientBuilder().queue(queue).build();
    }

    /** The same, for a client with options: add the queue and what the test is about. */
    public Client.Builder clientBuilder() {
        return Client.builder().servers("http://fake").transport(this).clock(new ClientClock() {
            @Override
            public long nanos() {
                return Duration.between(start, now()).toNanos();
            }

            @Override
            public void sleep(Duration d) {
                advance(d.plusMillis(1)); // The clock counts whole milliseconds.
            }
        });
    }

    /** Has calls need a token; the values are the roles {@code producer} and {@code viewer}. */
    public synchronized void requireTokens(Map<String, String> roles) {
        tokens = Map.copyOf(roles);
    }

    /** The bridge's time. */
    public synchronized Instant now() {
        return now;
    }

    /**
     * Moves the clock forward. Every message that becomes due is published at its due time, in due order, and returned.
     * A duration of zero publishes what is due now.
     */
    public synchronized List<Published> advance(Duration by) {
        if (by.isNegative()) {
            throw new IllegalArgumentException(by + ": time does not run backwards");
        }
        Instant to = Instant.ofEpochMilli(now.plus(by).toEpochMilli());
        int before = published.size();
        for (Optional<Stored> next = next(to); next.isPresent(); next = next(to)) {
            Stored s = next.get();
            now = s.dueAt.isAfter(now) ? s.dueAt : now;
            publish(s);
        }
        now = to.isAfter(now) ? to : now;
        return List.copyOf(published.subList(before, published.size()));
    }

    /** All that was published, in that order. */
    public synchronized List<Published> published() {
        return List.copyOf(published);
    }

    /** The messages that wait in the queue, in due order, each with the instant at which it is due. */
    public synchronized List<Message> scheduled(String queue) {
        return queues.get(queue).values().stream()
                .filter(s -> !s.isInFlight)
                .sorted(IN_DUE_ORDER)
                .map(s -> s.message.toBuilder().at(s.dueAt).build())
                .toList();
    }

    /**
     * Has the handler called for each message of the topic that is published. Until it returns, the message is in
     * flight, so a cancel is too late. It may schedule more.
     */
    public synchronized void handle(String topic, Consumer<Published> handler) {
        handlers.put(topic, handler);
    }

    /** Has the next requests fail, so many of them. */
    public synchronized void fail(Fault fault, int times) {
        for (int i = 0; i < times; i++) {
            faults.add(fault);
        }
    }

    private Optional<Stored> next(Instant to) {
        return all().filter(s -> !s.isInFlight && !s.dueAt.isAfter(to)).min(IN_DUE_ORDER);
    }

    private Stream<Stored> all() {
        return queues.values().stream().map(Map::values).flatMap(Collection::stream);
    }

    private void publish(Stored s) {
        String queue = queues.entrySet().stream()
                .filter(q -> q.getValue().containsValue(s))
                .findFirst()
                .orElseThrow()
                .getKey();
        Message m = s.message;
        Map<String, String> headers = new LinkedHashMap<>(s.headers);
        headers.put("delay-uid", "uid-" + s.number);
        headers.put("delay-id", m.id());
        headers.put("delay-queue", queue);
        headers.put("delay-due-at", Text.stamp(s.dueAt));
        headers.put("delay-scheduled-at", Text.stamp(s.scheduledAt));
        headers.put("delay-attempt", "1");
        if (s.firstAt != null) {
            headers.put("delay-first-at", Text.stamp(s.firstAt));
        }
        Published p = new Published(queue, m.id(), m.key(), m.topic(), m.body(), Map.copyOf(headers), s.dueAt, now);
        s.isInFlight = true;
        try {
            handlers.getOrDefault(m.topic(), ignored -> {}).accept(p);
        } finally {
            queues.get(queue).remove(m.ref());
            published.add(p);
        }
    }

    /** Answers a request as a bridge does. */
    @Override
    public synchronized Answer send(Request request, Duration timeout) throws IOException {
        Fault fault = faults.poll();
        if (fault == Fault.REFUSED) {
            throw new ConnectException("the test asked for it");
        }
        if (fault != null && fault != Fault.LOST) {
            return problem(new Refusal(fault.status, fault.code(), "the test asked for it", null), Json.object());
        }
        Answer answer = answer(Incoming.of(request));
        if (fault == Fault.LOST) {
            throw new IOException("the test asked for it");
        }
        return answer;
    }

    private Answer answer(Incoming r) {
        try {
            authorize(r);
            if (r.queue() == null || !queues.containsKey(r.queue())) {
                throw Refusal.of("not_found", "there is no such queue or call");
            }
            if (r.id() != null) {
                return json(200, ofMessage(r));
            }
            return r.method().equals("POST") ? once(r) : json(200, cancelAll(r));
        } catch (Refusal e) {
            return problem(e, Json.object());
        } catch (InvalidException e) {
            return problem(Refusal.of(e), Json.object());
        }
    }

    private void authorize(Incoming r) {
        if (tokens == null) {
            return;
        }
        String role = tokens.get(r.token());
        if (role == null) {
            throw Refusal.of("unauthorized", "the token is not known");
        }
        if (role.equals("viewer") && !r.method().equals("GET")) {
            throw Refusal.of("forbidden", "a viewer changes nothing");
        }
    }

    private ObjectNode ofMessage(Incoming r) {
        Ref ref = new Ref(r.id(), r.query().getOrDefault("key", ""));
        Stored s = queues.get(r.queue()).get(ref);
        if (s == null) {
            throw Refusal.of("not_found", "message not found");
        }
        if (r.method().equals("GET")) {
            return view(r.queue(), s, r.query().containsKey("body"));
        }
        if (s.isInFlight) {
            throw Refusal.of("too_late", "too late, message in flight");
        }
        if (r.method().equals("DELETE")) {
            queues.get(r.queue()).remove(ref);
            return changed("cancelled");
        }
        s.dueAt = r.verb().equals("publish-now") ? now : dueAt(ref, Incoming.due(r.json()));
        return changed("rescheduled");
    }

    private static ObjectNode changed(String status) {
        return Json.object().put("status", status).put("maybe_published", false);
    }

    /** Schedules, or repeats the answer of the first request under the key. */
    private Answer once(Incoming r) {
        JsonNode members = r.json();
        List<String> name = r.key() == null ? null : List.of(r.token(), r.queue(), r.key());
        Remembered first = answers.get(name);
        if (first != null && first.until.isAfter(now)) {
            if (!first.request.equals(members)) {
                String detail = "the Idempotency-Key was used for another request in the last 24 h";
                throw new Refusal(422, "key_reused", detail, "Idempotency-Key");
            }
            Map<String, String> headers = new HashMap<>(first.answer.headers());
            headers.put("idempotent-replayed", "true");
            return new Answer(first.answer.status(), headers, first.answer.body());
        }
        Answer answer = r.verb().equals("batch") ? batch(r.queue(), members.path("messages")) : one(r.queue(), members);
        if (name != null && answer.status() != 400) {
            answers.put(name, new Remembered(members, answer, now.plus(REMEMBERED)));
        }
        return answer;
    }

    private Answer one(String queue, JsonNode members) {
        ObjectNode result = schedule(queue, members);
        if (!result.has("error")) {
            return json(201, result);
        }
        JsonNode e = result.path("error");
        String code = e.path("code").asText();
        Refusal refusal = new Refusal(STATUSES.get(code), code, e.path("detail").asText(), e.path("field").textValue());
        result.remove(List.of("error", "key"));
        return problem(refusal, result);
    }

    /** Replacements go last. */
    private Answer batch(String queue, JsonNode messages) {
        ObjectNode[] results = new ObjectNode[messages.size()];
        IntStream.range(0, results.length)
                .boxed()
                .sorted(Comparator.comparing(i -> messages.path(i).path("conflict").asText().equals("replace")))
                .forEach(i -> results[i] = schedule(queue, messages.path(i)));
        ObjectNode all = Json.object();
        all.putArray("results").addAll(List.of(results));
        return json(200, all);
    }

    /** The result of one message, which may have an error. */
    private ObjectNode schedule(String queue, JsonNode members) {
        String id = members.path("id").asText("01FAKE%020d".formatted(++numbers));
        ObjectNode result = Json.object().put("id", id).put("key", members.path("key").asText());
        try {
            Message m = Incoming.message(members, id);
            Map<String, String> headers = Limits.message(m);
            checkMaxWait(m);
            store(queue, new Stored(m, headers, now, ++numbers, dueAt(m.ref(), m.due())), result);
        } catch (InvalidException e) {
            result.set("error", Refusal.of(e).error);
        } catch (Refusal e) {
            result.set("error", e.error);
        }
        return result;
    }

    private void store(String queue, Stored s, ObjectNode result) {
        Stored old = queues.get(queue).get(s.message.ref());
        Conflict conflict = s.message.conflict();
        if (old != null && conflict != Conflict.REPLACE) {
            result.put("due_at", Text.stamp(old.dueAt));
            if (conflict != Conflict.KEEP) {
                throw Refusal.of("duplicate", "duplicate message: it waits until " + Text.stamp(old.dueAt));
            }
            result.put("status", "existing");
            return;
        }
        if (old != null && old.isInFlight) {
            throw Refusal.of("too_late", "too late, message in flight");
        }
        if (s.message.maxWait() != null) {
            s.firstAt = old != null && old.firstAt != null ? old.firstAt : now;
            Instant latest = s.firstAt.plus(s.message.maxWait());
            s.dueAt = s.dueAt.isAfter(latest) ? latest : s.dueAt;
        }
        queues.get(queue).put(s.message.ref(), s);
        result.put("due_at", Text.stamp(s.dueAt)).put("status", old == null ? "created" : "replaced");
    }

    private static void checkMaxWait(Message m) {
        Duration after = m.due().after();
        boolean isGood = m.maxWait() == null
                || m.conflict() == Conflict.REPLACE && after != null && m.maxWait().compareTo(after) >= 0;
        if (!isGood) {
            throw new InvalidException("max_wait", "needs in, conflict replace, and at least the delay");
        }
    }

    private Instant dueAt(Ref ref, Due due) {
        Instant at = due.at() != null ? due.at() : now.plus(due.after());
        if (at.isBefore(Instant.EPOCH) || at.isAfter(now.plus(MOST_DELAY))) {
            throw new InvalidException(due.at() != null ? "at" : "in", "must be from 1970 to 10 years from now");
        }
        long spread = due.spread() == null ? 0 : Math.max(due.spread().toMillis(), 0);
        return at.plusMillis(Spread.share(ref.key(), ref.id(), spread));
    }

    private ObjectNode cancelAll(Incoming r) {
        String tag = r.query().getOrDefault("tag", "");
        String key = r.query().getOrDefault("key", "");
        if (tag.isEmpty() && key.isEmpty()) {
            throw new InvalidException("filter", "needs a tag or a key");
        }
        List<Stored> meant = queues.get(r.queue()).values().stream()
                .filter(s -> tag.isEmpty() || s.message.tags().contains(tag))
                .filter(s -> key.isEmpty() || s.message.key().equals(key))
                .toList();
        List<Stored> done = meant.stream().filter(s -> !s.isInFlight).toList();
        done.forEach(s -> queues.get(r.queue()).remove(s.message.ref()));
        return Json.object()
                .put("done", done.size())
                .put("maybe_published", 0)
                .put("too_late", meant.size() - done.size())
                .put("more", false);
    }

    private static ObjectNode view(String queue, Stored s, boolean withBody) {
        Message m = s.message;
        ObjectNode view = Json.object()
                .put("id", m.id())
                .put("key", m.key())
                .put("queue", queue)
                .put("topic", m.topic())
                .put("state", s.isInFlight ? "in_flight" : "scheduled")
                .put("due_at", Text.stamp(s.dueAt))
                .put("scheduled_at", Text.stamp(s.scheduledAt))
                .put("attempt", 1)
                .put("maybe_published", false);
        ArrayNode tags = view.putArray("tags");
        String joined = Limits.joinedTags(m.tags());
        Stream.of(joined.split(",")).filter(t -> !t.isEmpty()).forEach(tags::add);
        ObjectNode headers = view.putObject("headers");
        s.headers.forEach(headers::put);
        headers.remove("delay-tags");
        if (withBody) {
            String text = Text.textOf(m.body());
            view.put(text == null ? "body_base64" : "body", text == null ? base64(m.body()) : text);
        }
        return view;
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    /** The answer of an error, with what is known of the message. */
    private static Answer problem(Refusal r, ObjectNode known) {
        ObjectNode all = known.put("title", TITLES.get(r.status)).put("status", r.status);
        all.setAll(r.error);
        Map<String, String> headers = new HashMap<>();
        headers.put("content-type", "application/problem+json");
        if (r.status == 429 || r.status == 503) {
            headers.put("retry-after", "1");
        }
        return new Answer(r.status, headers, Json.text(all).getBytes(StandardCharsets.UTF_8));
    }

    private static Answer json(int status, ObjectNode value) {
        byte[] body = Json.text(value).getBytes(StandardCharsets.UTF_8);
        return new Answer(status, Map.of("content-type", "application/json"), body);
    }
}
