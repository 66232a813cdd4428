package io.github.delaybridge.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.abort;

import io.github.delaybridge.Client;
import io.github.delaybridge.DuplicateException;
import io.github.delaybridge.Message;
import io.github.delaybridge.testing.FakeBridge;
import java.time.Duration;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration;
import org.springframework.boot.autoconfigure.jdbc.DataSourceTransactionManagerAutoConfiguration;
import org.springframework.boot.autoconfigure.jdbc.JdbcTemplateAutoConfiguration;
import org.springframework.boot.autoconfigure.transaction.TransactionAutoConfiguration;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.ApplicationContext;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.support.TransactionTemplate;

/** The beans in an application's context. */
@Timeout(120)
class DelaybridgeAutoConfigurationTest {
    private final ApplicationContextRunner runner = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(DelaybridgeAutoConfiguration.class));

    @Test
    void withoutAQueueThereIsNothing() {
        runner.withPropertyValues("delaybridge.servers=http://b:8080").run(c -> assertThat(c).doesNotHaveBean(Client.class));
    }

    @Test
    void aClientIsMadeOfTheProperties() {
        runner.withPropertyValues("delaybridge.queue=orders", "delaybridge.servers=http://a:8080,http://b:8080")
                .run(c -> assertThat(c.getBean(Client.class).queue()).isEqualTo("orders"));
        runner.withPropertyValues("delaybridge.queue=orders", "delaybridge.servers[0]=http://a:8080")
                .run(c -> assertThat(c).hasSingleBean(Client.class).doesNotHaveBean(TransactionalOutbox.class));
    }

    @Test
    void aWrongPropertyIsNamed() {
        runner.withPropertyValues("delaybridge.queue=orders", "delaybridge.servers=bridge-1:8080")
                .run(c -> assertThat(c.getStartupFailure()).rootCause().hasMessageContaining("servers bridge-1:8080: give http"));
        String[] both = {"delaybridge.queue=q", "delaybridge.servers=http://a", "delaybridge.token=t", "delaybridge.token-file=f"};
        runner.withPropertyValues(both)
                .run(c -> assertThat(c.getStartupFailure()).rootCause().hasMessageContaining("delaybridge.token-file"));
    }

    @Test
    void aClientOfOnesOwnTakesItsPlace() {
        FakeBridge fake = new FakeBridge("orders");
        runner.withBean(Client.class, () -> fake.client("orders"))
                .withPropertyValues("delaybridge.queue=orders", "delaybridge.servers=http://a:8080")
                .run(c -> {
                    c.getBean(Client.class).schedule(message("a"));
                    assertThat(fake.scheduled("orders")).hasSize(1);
                });
    }

    @Test
    void theOutboxWritesInTheCurrentTransaction() {
        String url = System.getenv("DELAYBRIDGE_TEST_POSTGRES_URL");
        if (url == null) {
            String message = "DELAYBRIDGE_TEST_POSTGRES_URL is not set: make sdk-java sets it";
            url = "true".equals(System.getenv("CI")) ? fail(message) : abort(message);
        }
        Matcher m = Pattern.compile("postgres://(.*):(.*)@([^/]+)/.*").matcher(url);
        assertThat(m.matches()).isTrue();
        runner.withConfiguration(AutoConfigurations.of(
                        DataSourceAutoConfiguration.class,
                        DataSourceTransactionManagerAutoConfiguration.class,
                        TransactionAutoConfiguration.class,
                        JdbcTemplateAutoConfiguration.class))
                .withPropertyValues(
                        "delaybridge.queue=orders",
                        "delaybridge.outbox-table=box_" + UUID.randomUUID().toString().replace("-", ""),
                        "spring.datasource.url=jdbc:postgresql://" + m.group(3) + "/postgres?sslmode=disable",
                        "spring.datasource.username=" + m.group(1),
                        "spring.datasource.password=" + m.group(2))
                .run(DelaybridgeAutoConfigurationTest::writes);
    }

    private static void writes(ApplicationContext context) {
        TransactionalOutbox outbox = context.getBean(TransactionalOutbox.class);
        assertThatThrownBy(() -> outbox.schedule(message("a"))).isInstanceOf(IllegalTransactionStateException.class);
        JdbcTemplate jdbc = context.getBean(JdbcTemplate.class);
        String table = context.getBean(DelaybridgeProperties.class).outboxTable();
        jdbc.execute("CREATE TABLE " + table + " (id bigserial, queue text, message_key text, message_id text, op int,"
                + " status int DEFAULT 0, target bigint, tried bool, due_ms bigint, topic text, headers jsonb, body bytea)");
        try {
            jdbc.execute("CREATE UNIQUE INDEX ON " + table + " (queue, message_key, message_id) WHERE op = 0 AND status IN (0, 1)");
            TransactionTemplate transaction = context.getBean(TransactionTemplate.class);
            transaction.executeWithoutResult(tx -> {
                outbox.schedule(message("a"));
                tx.setRollbackOnly();
            });
            assertThat(count(jdbc, table)).isZero();
            transaction.executeWithoutResult(tx -> {
                assertThat(outbox.schedule(message("b")).status()).isEqualTo("created");
                assertThatThrownBy(() -> outbox.schedule(message("b"))).isInstanceOf(DuplicateException.class);
            });
            assertThat(count(jdbc, table)).isOne();
        } finally {
            jdbc.execute("DROP TABLE " + table);
        }
    }

    private static int count(JdbcTemplate jdbc, String table) {
        return jdbc.queryForObject("SELECT count(*) FROM " + table + " WHERE queue = 'orders'", Integer.class);
    }

    private static Message message(String id) {
        return Message.builder("order.timeout").id(id).after(Duration.ofMinutes(30)).build();
    }
}
