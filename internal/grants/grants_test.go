package grants_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/grants"
)

func parse(t *testing.T, format string, args ...any) *config.Config {
	t.Helper()
	cfg, err := config.Parse(fmt.Appendf(nil, format, args...), nil)
	require.NoError(t, err)
	return cfg
}

func TestLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		queue, sink string
		want        []string
	}{
		"kafka, all topics": {"", `{type: kafka, brokers: ["k:9092"], sasl: {mechanism: plain, username: shop, password: x}}`, []string{
			"kafka-acls --bootstrap-server k:9092 --add --allow-principal User:shop --operation Write --topic '*'",
		}},
		"kafka, some": {`topics: ["order.timeout", "pay.*", "a*b"], compensation: c`, `{type: kafka, brokers: ["k:9092"]}`, []string{
			"# Kafka has prefixes only, so this is more than a*b:",
			"ADD Write --resource-pattern-type prefixed --topic a",
			"ADD Write --topic c.dead",
			"ADD Write --topic order.timeout",
			"ADD Write --resource-pattern-type prefixed --topic pay.",
			"ADD Read --topic c",
			"ADD Read --group delaybridge-delay-orders",
			"# Only where the bridge is to make these topics:",
			"ADD Create --topic c",
			"ADD Create --topic c.dead",
		}},
		"nats": {`topics: ["order.timeout", "pay.*", "ship.to*"]`, `{type: nats, url: "nats://shop:secret@n:4222"}`, []string{
			"# NATS has whole tokens only, so ship.> is more than ship.to*.",
			"{user: shop, password: PASSWORD, permissions: {",
			`  publish: {allow: ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "order.timeout", "pay.>", "ship.>"]},`,
			`  subscribe: {allow: ["_INBOX.>"]}}}`,
		}},
		"rabbitmq": {"", `{type: rabbitmq, url: "amqp://shop:secret@r/sales"}`, []string{
			`rabbitmqctl set_permissions -p sales shop '' '^(amq\.default)$' ''`,
		}},
		"rabbitmq, an exchange": {`topics: ["pay.*"], compensation: c`, `{type: rabbitmq, url: "amqp://r", exchange: orders}`, []string{
			`rabbitmqctl set_permissions -p / bridge '^(c|c\.dead)$' '^(c|c\.dead|orders)$' '^(c|orders)$'`,
			"# Only where orders is a topic exchange:",
			`rabbitmqctl set_topic_permissions -p / bridge orders '^(c\.dead|pay\..*)$' '^(c|c\.dead)$'`,
		}},
	} {
		cfg := parse(t, "queues: {orders: {sink: events, %s}}\nsinks: {events: %s}\n", c.queue, c.sink)
		for i, line := range c.want {
			c.want[i] = strings.Replace(line, "ADD ", "kafka-acls --bootstrap-server k:9092 --add --allow-principal User:bridge --operation ", 1)
		}
		assert.Equal(t, c.want, grants.Lines(cfg, "events"), name)
	}
}

// TestInletLines: what an inlet consumes is read, and its replies and dead topic are written to.
func TestInletLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sink, from string
		want       []string
	}{
		"kafka": {`{type: kafka, brokers: ["k:9092"]}`, "commands", []string{"Write --topic d", "Write --topic r", "Write --topic t", "Read --topic commands", "Read --group delaybridge-in"}},
		"nats": {`{type: nats, url: "nats://n:4222"}`, "{stream: S, subject: commands}", []string{
			`"d", "r", "t"`, `"$JS.API.CONSUMER.CREATE.S.delaybridge-in.commands", "$JS.API.CONSUMER.INFO.S.delaybridge-in", "$JS.API.CONSUMER.MSG.NEXT.S.delaybridge-in", "$JS.ACK.S.delaybridge-in.>"`,
		}},
		"rabbitmq": {`{type: rabbitmq, url: "amqp://r"}`, "commands", []string{`'' '^(amq\.default)$' '^(commands)$'`}},
	} {
		cfg := parse(t, "queues: {orders: {sink: events, topics: [t]}}\nsinks: {events: %s}\ninlets: {in: {sink: events, from: %s, queue: orders, replies: r, dead: d}}\n", c.sink, c.from)
		lines := strings.Join(grants.Lines(cfg, "events"), "\n")
		for _, want := range c.want {
			assert.Contains(t, lines, want, name)
		}
	}
}
