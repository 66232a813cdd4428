package io.github.delaybridge;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.testing.FakeBridge;
import io.github.delaybridge.testing.Fault;
import io.github.delaybridge.testing.Published;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Holds the fake bridge against the vectors, and uses it as programs do. */
@Timeout(60)
class FakeBridgeTest {
    private final FakeBridge bridge = new FakeBridge(Instant.parse("2031-01-31T09:00:00Z"), "orders");
    private final Client client = bridge.client("orders");

    static Stream<Neutral.Vector> calls() {
        return Neutral.read("calls.json").filter(v -> v.v().path("real").asBoolean(true));
    }

    @ParameterizedTest
    @MethodSource("calls")
    void vectors(Neutral.Vector vector) throws Exception {
        JsonNode v = vector.v();
        FakeBridge fake = new FakeBridge("orders");
        if (v.path("options").has("token")) {
            fake.requireTokens(Map.of("producer-token-1", "producer", "viewer-token-1", "viewer"));
        }
        List<Transport.Answer> answers = new ArrayList<>();
        boolean isClaimed = false;
        for (JsonNode step : v.path("before")) {
            isClaimed |= step.isTextual();
            if (step.isObject()) {
                assertThat(ask(fake, step).status()).isEqualTo(201);
            }
        }
        if (isClaimed) { // In a handler, the message is in flight.
            fake.handle("t", m -> answers.add(asked(fake, v.path("request"))));
            fake.advance(Duration.ZERO);
        } else {
            answers.add(ask(fake, v.path("request")));
        }
        Transport.Answer got = answers.get(0);
        assertThat(got.status()).isEqualTo(v.path("answer").path("status").asInt());
        matched(Neutral.parsed(got.body()), v.path("answer").path("body"), new HashMap<>());
        v.path("answer").path("headers").properties().forEach(h -> assertThat(got.headers())
                .containsEntry(h.getKey().toLowerCase(), h.getValue().asText()));
    }

    private static Transport.Answer asked(FakeBridge fake, JsonNode r) {
        try {
            return ask(fake, r);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    private static Transport.Answer ask(FakeBridge fake, JsonNode r) throws Exception {
        String query = r.path("query").properties().stream()
                .map(q -> q.getKey() + "=" + URLEncoder.encode(q.getValue().asText(), StandardCharsets.UTF_8))
                .collect(Collectors.joining("&"));
        URI uri = URI.create("http://fake" + r.path("path").asText() + (query.isEmpty() ? "" : "?" + query));
        Map<String, String> headers = new HashMap<>();
        r.path("headers").properties().forEach(h -> headers.put(h.getKey(), h.getValue().asText().replace("$KEY", "a-key")));
        byte[] body = r.has("body") ? Json.text(r.path("body")).getBytes(StandardCharsets.UTF_8) : null;
        return fake.send(new Transport.Request(r.path("method").asText(), uri, headers, body), Duration.ZERO);
    }

    /** Compares an answer with the vector's, whose placeholders stand for the same everywhere. */
    private static void matched(JsonNode got, JsonNode want, Map<String, String> values) {
        if (want.isContainerNode()) {
            assertThat(got.size()).as("%s", got).isEqualTo(want.size());
            want.properties().forEach(m -> matched(got.path(m.getKey()), m.getValue(), values));
            for (int i = 0; want.isArray() && i < want.size(); i++) {
                matched(got.path(i), want.path(i), values);
            }
        } else if (want.isTextual() && want.asText().startsWith("$")) {
            Map<String, String> forms = Map.of("$ID", "[0-9A-HJKMNP-TV-Z]{26}", "$DETAIL", ".+");
            String instant = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z";
            assertThat(got.asText()).matches(forms.getOrDefault(want.asText(), instant));
            if (!want.asText().equals("$DETAIL")) {
                assertThat(values.computeIfAbsent(want.asText(), k -> got.asText())).isEqualTo(got.asText());
            }
        } else {
            assertThat(got).isEqualTo(want);
        }
    }

    private static Message.Builder inMinutes(int n, String id) {
        return Message.builder("order.timeout").after(Duration.ofMinutes(n)).id(id);
    }

    private static List<String> ids(List<Published> published) {
        return published.stream().map(Published::id).toList();
    }

    @Test
    void dueMessagesArePublished() {
        client.schedule(inMinutes(30, "b").key("k").body("text").header("tenant", "a").tags("x").build());
        client.schedule(inMinutes(10, "a").build());
        client.schedule(inMinutes(60, "c").build());
        assertThat(bridge.advance(Duration.ofSeconds(599))).isEmpty();
        assertThat(ids(bridge.advance(Duration.ofMinutes(30)))).containsExactly("a", "b");
        Published b = bridge.published().get(1);
        assertThat(b.text()).isEqualTo("text");
        assertThat(b.publishedAt()).isEqualTo("2031-01-31T09:30:00Z");
        assertThat(b.headers()).containsEntry("tenant", "a").containsEntry("delay-tags", "x");
        assertThat(b.headers()).containsEntry("delay-due-at", "2031-01-31T09:30:00.000Z");
        assertThat(bridge.scheduled("orders")).hasSize(1).allMatch(m -> m.id().equals("c"));
        assertThatThrownBy(() -> bridge.advance(Duration.ofMillis(-1))).hasMessageContaining("backwards");
    }

    @Test
    void cancelAndRescheduleTellTheTruth() {
        client.schedule(inMinutes(30, "a").build());
        client.reschedule(Ref.of("a"), Due.after(Duration.ofHours(1)));
        assertThat(bridge.advance(Duration.ofMinutes(59))).isEmpty();
        assertThatThrownBy(() -> client.schedule(inMinutes(1, "a").build())).isInstanceOf(DuplicateException.class);
        assertThat(client.cancel("a").status()).isEqualTo("cancelled");
        assertThatThrownBy(() -> client.cancel("a")).isInstanceOf(NotFoundException.class);
        client.schedule(inMinutes(1, "b").build());
        client.publishNow(Ref.of("b"));
        assertThat(ids(bridge.advance(Duration.ZERO))).containsExactly("b");
    }

    @Test
    void handlersMeetMessagesInFlight() {
        bridge.handle("order.timeout", m -> {
            assertThatThrownBy(() -> client.cancel(m.id())).isInstanceOf(TooLateException.class);
            if (m.id().equals("1")) {
                client.schedule(inMinutes(5, "2").build());
            }
        });
        client.schedule(inMinutes(5, "1").build());
        List<Published> published = bridge.advance(Duration.ofMinutes(20));
        assertThat(ids(published)).containsExactly("1", "2");
        assertThat(published.get(1).publishedAt()).isEqualTo("2031-01-31T09:10:00Z");
    }

    @Test
    void debounce() {
        Message m = inMinutes(2, "a").conflict(Conflict.REPLACE).maxWait(Duration.ofMinutes(5)).build();
        for (int i = 0; i < 4; i++) {
            client.schedule(m);
            assertThat(bridge.advance(Duration.ofMinutes(1))).isEmpty();
        }
        assertThat(ids(bridge.advance(Duration.ofMinutes(1)))).containsExactly("a");
    }

    @Test
    void faults() {
        bridge.fail(Fault.LOST, 1);
        ScheduleResult result = client.schedule(inMinutes(30, "").build());
        assertThat(result.replayed()).isTrue();
        bridge.fail(Fault.REFUSED, 1);
        assertThat(client.get(result.ref()).id()).isEqualTo(result.id());
        assertThat(bridge.scheduled("orders")).hasSize(1);
        bridge.fail(Fault.LOST, 1);
        assertThatThrownBy(() -> client.cancel(result.id())).isInstanceOf(UnknownException.class);
        bridge.fail(Fault.UNAVAILABLE, 100);
        assertThatThrownBy(() -> client.schedule(inMinutes(30, "").build())).isInstanceOf(UnavailableException.class);
        assertThat(bridge.scheduled("orders")).isEmpty();
    }

    @Test
    void keysAreKeptForADay() {
        CallOptions key = CallOptions.NONE.withIdempotencyKey("k");
        String first = client.schedule(inMinutes(1, "").build(), key).id();
        assertThatThrownBy(() -> client.schedule(inMinutes(2, "").build(), key)).isInstanceOf(KeyReusedException.class);
        bridge.advance(Duration.ofHours(23));
        assertThat(client.schedule(inMinutes(1, "").build(), key).id()).isEqualTo(first);
        bridge.advance(Duration.ofHours(1));
        assertThat(client.schedule(inMinutes(1, "").build(), key).id()).isNotEqualTo(first);
    }

    @Test
    void aBatcherTellsEachOutcome() throws Exception {
        List<CompletableFuture<ScheduleResult>> futures = new ArrayList<>();
        try (Batcher batcher = Batcher.of(client)) {
            for (int i = 0; i < 1200; i++) {
                futures.add(batcher.add(inMinutes(2, "").build()));
            }
        }
        assertThat(futures.stream().map(f -> f.join().id())).doesNotHaveDuplicates();
        assertThat(bridge.advance(Duration.ofMinutes(2))).hasSize(1200);
    }
}
