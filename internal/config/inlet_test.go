package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const inletBase = `
queues: {orders: {sink: log}, events: {sink: nats}}
sinks:
  log: {type: kafka, brokers: ["127.0.0.1:9092"]}
  rabbit: {type: rabbitmq, url: "amqp://127.0.0.1/"}
  nats: {type: nats, url: "nats://127.0.0.1:4222"}
  streams: {type: redis, url: "redis://127.0.0.1:6379"}
`

// TestInlets: what is consumed, by the kind of broker.
func TestInlets(t *testing.T) {
	t.Parallel()
	cfg, err := Parse([]byte(inletBase+`
inlets:
  a: {sink: log, from: commands, queue: orders, topic: out, replies: r, dead: d, remember: 1h}
  b: {sink: nats, from: {stream: S, subject: "delay.*"}, queue: orders}
  c: {sink: rabbit, from: {topic: delayed}, queue: events}
`), nil)
	require.NoError(t, err)
	assert.Equal(t, Inlet{Sink: "log", From: From{Topic: "commands"}, Queue: "orders", Topic: "out", Replies: "r", Dead: "d", Remember: time.Hour}, cfg.Inlets["a"])
	assert.Equal(t, "delay.*", cfg.Inlets["b"].From.Name())
	assert.Equal(t, 10*time.Minute, cfg.Inlets["b"].Remember)
	assert.Equal(t, "delayed", cfg.Inlets["c"].From.Name())
	var printed strings.Builder
	require.NoError(t, cfg.Print(&printed))
	again, err := Parse([]byte(printed.String()), nil)
	require.NoError(t, err, printed.String())
	assert.Equal(t, cfg.Inlets, again.Inlets)
	overridden, err := Parse([]byte(inletBase+"inlets: {a: {sink: log, from: commands, queue: orders}}\n"), []string{"DELAYBRIDGE__INLETS__A__FROM__TOPIC=others"})
	require.NoError(t, err)
	assert.Equal(t, "others", overridden.Inlets["a"].From.Topic)
}

// TestInletsRefused: each error names the key.
func TestInletsRefused(t *testing.T) {
	t.Parallel()
	for inlet, want := range map[string]string{
		`{sink: none, from: c, queue: orders}`:                           "inlets.a.sink: \"none\" is no sink",
		`{sink: log, from: c, queue: none}`:                              "inlets.a.queue: \"none\" is no queue",
		`{sink: streams, from: c, queue: orders}`:                        "inlets.a.sink: \"streams\" is a sink of type redis",
		`{sink: log, queue: orders}`:                                     "inlets.a.from: give the name",
		`{sink: log, from: {stream: S, subject: s}, queue: orders}`:      "inlets.a.from: give the name",
		`{sink: nats, from: c, queue: orders}`:                           "inlets.a.from: give {stream: NAME, subject: NAME}",
		`{sink: nats, from: {stream: "a b", subject: c}, queue: orders}`: "inlets.a.from.stream",
		`{sink: log, from: "a b", queue: orders}`:                        "inlets.a.from: topic \"a b\"",
		`{sink: log, from: c, queue: orders, topic: c}`:                  "inlets.a.topic: \"c\" is what the inlet consumes",
		`{sink: log, from: c, queue: orders, replies: c}`:                "inlets.a.replies: \"c\" is what the inlet consumes",
		`{sink: log, from: c, queue: orders, dead: "a b"}`:               "inlets.a.dead: topic \"a b\"",
		`{sink: log, from: c, queue: orders, remember: 1s}`:              "inlets.a.remember",
		`{sink: log, from: c, queue: orders, reply: r}`:                  "inlets.a.reply: unknown key",
	} {
		_, err := Parse([]byte(inletBase+"inlets: {a: "+inlet+"}\n"), nil)
		assert.ErrorContains(t, err, want, inlet)
	}
}
