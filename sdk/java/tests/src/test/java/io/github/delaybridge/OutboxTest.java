package io.github.delaybridge;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.outbox.Outbox;
import io.github.delaybridge.outbox.Written;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Plays the vectors of the outbox in real databases. */
@Timeout(300)
class OutboxTest {
    private static Database database(String kind) throws Exception {
        return kind.equals("postgres") ? Database.postgres() : Database.mariadb();
    }

    @ParameterizedTest
    @ValueSource(strings = {"postgres", "mariadb"})
    void vectors(String kind) throws Exception {
        try (Database database = database(kind);
                Connection c = database.connect()) {
            Outbox box = Outbox.of(c, "box");
            for (Neutral.Vector vector : Neutral.read("outbox.json").toList()) { // They share the table.
                try (Statement s = c.createStatement()) {
                    s.executeUpdate("DELETE FROM box");
                }
                List<JsonNode> results = new ArrayList<>();
                for (JsonNode call : vector.v().path("calls")) {
                    results.add(write(box, c, call));
                }
                List<ObjectNode> rows = rows(c);
                JsonNode want = vector.v();
                if (Json.text(want).contains("$ID")) {
                    String id = rows.get(0).path("message_id").asText();
                    assertThat(id).matches("[0-9A-HJKMNP-TV-Z]{26}");
                    want = Neutral.parsed(Json.text(want).replace("$ID", id).getBytes(StandardCharsets.UTF_8));
                }
                assertThat(results).as(vector.toString()).isEqualTo(Neutral.stream(want.path("results")).toList());
                sameRows(rows, want.path("rows"), now(c, kind), vector.toString());
            }
        }
    }

    private static void sameRows(List<ObjectNode> found, JsonNode wanted, long now, String name) {
        assertThat(found).as(name).hasSize(wanted.size());
        for (int i = 0; i < found.size(); i++) {
            ObjectNode want = wanted.path(i).deepCopy();
            long due = found.get(i).path("due_ms").asLong();
            if (want.path("due_ms").isObject()) {
                long plus = want.path("due_ms").path("now_plus_ms").asLong();
                assertThat(due - now - plus).as(name).isBetween(-60_000L, 60_000L);
                want.put("due_ms", due);
            }
            assertThat(Json.text(found.get(i))).as(name).isEqualTo(Json.text(ordered(want)));
        }
    }

    private static final List<String> COLUMNS = List.of(
            "queue", "message_key", "message_id", "op", "target", "tried", "revision", "due_ms", "topic", "headers", "body");

    private static ObjectNode ordered(ObjectNode row) {
        ObjectNode o = Json.object();
        for (String column : COLUMNS) {
            JsonNode value = row.path(column);
            if (value.isObject()) {
                ObjectNode sorted = Json.object();
                value.properties().stream()
                        .sorted((a, b) -> a.getKey().compareTo(b.getKey()))
                        .forEach(e -> sorted.set(e.getKey(), e.getValue()));
                value = sorted;
            }
            o.set(column, value);
        }
        return o;
    }

    /** Makes a call of a vector, and returns its result in neutral form. */
    private static JsonNode write(Outbox box, Connection c, JsonNode call) throws SQLException {
        String queue = call.path("queue").asText();
        Ref ref = new Ref(call.path("id").asText(), call.path("key").asText());
        ObjectNode result = Json.object();
        try {
            switch (call.path("do").asText()) {
                case "cancel" -> box.cancel(c, queue, ref);
                case "reschedule" -> box.reschedule(c, queue, ref, Neutral.due(call));
                default -> {
                    Written w = box.schedule(c, queue, Neutral.message(call));
                    result.put("id", w.id()).put("key", w.key()).put("status", w.status());
                }
            }
        } catch (DelaybridgeException e) {
            ObjectNode error = result.putObject("error").put("code", e.code());
            if (e.field() != null) {
                error.put("field", e.field());
            }
            if (e.id() != null) {
                error.put("id", e.id());
            }
        }
        return result;
    }

    private static List<ObjectNode> rows(Connection c) throws SQLException {
        List<Long> ids = new ArrayList<>();
        ArrayNode tokens = Json.object().putArray("tokens");
        List<ObjectNode> rows = new ArrayList<>();
        String columns = "id, token, " + String.join(", ", COLUMNS);
        try (Statement s = c.createStatement();
                ResultSet r = s.executeQuery("SELECT " + columns + " FROM box ORDER BY id")) {
            while (r.next()) {
                ids.add(r.getLong("id"));
                tokens.add(new String(r.getBytes("token"), StandardCharsets.UTF_8));
                ObjectNode row = Json.object();
                for (String name : List.of("queue", "message_key", "message_id", "topic")) {
                    row.put(name, new String(r.getBytes(name), StandardCharsets.UTF_8));
                }
                row.put("op", r.getInt("op")).put("tried", r.getBoolean("tried"));
                row.put("revision", r.getLong("revision")).put("due_ms", r.getLong("due_ms"));
                long target = r.getLong("target");
                row.put("target", r.wasNull() ? null : (Integer) ids.indexOf(target));
                String headers = r.getString("headers");
                row.set("headers", headers == null ? null : Neutral.parsed(headers.getBytes(StandardCharsets.UTF_8)));
                row.put("body", Base64.getEncoder().encodeToString(r.getBytes("body")));
                rows.add(ordered(row));
            }
        }
        assertThat(Neutral.stream(tokens).map(JsonNode::asText)).doesNotHaveDuplicates().allMatch(t -> t.matches("~.{15}"));
        return rows;
    }

    private static long now(Connection c, String kind) throws SQLException {
        String sql = kind.equals("postgres")
                ? "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"
                : "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000";
        try (Statement s = c.createStatement();
                ResultSet r = s.executeQuery(sql)) {
            r.next();
            return r.getLong(1);
        }
    }

    private static Message inAnHour(String id) {
        return in(1, id);
    }

    private static Message in(int hours, String id) {
        return Message.builder("t").id(id).after(Duration.ofHours(hours)).build();
    }

    @Test
    void aRollbackLeavesNothingAndABatchTellsEachOutcome() throws Exception {
        try (Database database = Database.postgres();
                Connection c = database.connect()) {
            Outbox box = Outbox.postgres("box");
            var items = box.scheduleBatch(c, "orders", List.of(inAnHour("b"), inAnHour("a"), inAnHour(" "), inAnHour("a")));
            assertThat(items.stream().map(i -> i.error() == null ? i.written().status() : i.error().code()))
                    .containsExactly("created", "created", "invalid", "duplicate");
            assertThat(rows(c).stream().map(r -> r.path("message_id").asText())).containsExactly("a", "b");
            c.rollback();
            assertThat(rows(c)).isEmpty();
        }
    }

    /** In MySQL, an INSERT that meets a duplicate locks its neighbours in the index. */
    @ParameterizedTest
    @ValueSource(ints = {1, 0})
    void aDuplicateMakesNoOtherIdentityWait(int hours) throws Exception {
        Outbox box = Outbox.mysql("box");
        try (Database database = Database.mariadb();
                Connection one = database.connect();
                Connection other = database.connect()) {
            box.schedule(one, "orders", in(hours, "b"));
            box.schedule(one, "orders", in(hours, "d"));
            one.commit();
            assertThatThrownBy(() -> box.schedule(one, "orders", inAnHour("d"))).isInstanceOf(DuplicateException.class);
            try (Statement s = other.createStatement()) {
                s.execute("SET innodb_lock_wait_timeout = 1");
            }
            for (String id : List.of("a", "c", "e")) {
                assertThat(box.schedule(other, "orders", inAnHour(id)).status()).isEqualTo("created");
            }
            one.rollback();
            other.rollback();
        }
    }

    @Test
    void whatIsWrongIsNamedWithItsLimit() {
        assertThatThrownBy(() -> Outbox.mysql("Box")).hasMessageContaining("table \"Box\": 1 to 41 of a-z 0-9 _");
        Message large = Message.builder("t").after(Duration.ZERO).body(new byte[960 << 10]).build();
        assertThatThrownBy(() -> Outbox.postgres().schedule(null, "orders", large))
                .isInstanceOf(InvalidException.class)
                .hasMessageContaining("allowed are 983040");
    }
}
