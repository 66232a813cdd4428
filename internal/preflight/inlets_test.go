package preflight_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestInlets: what an inlet consumes is looked for, and so are its replies and its dead topic.
func TestInlets(t *testing.T) {
	t.Parallel()
	name := testenv.Name(t, "in")
	conn, err := kafka.DialContext(t.Context(), "tcp", testenv.Kafka(t)[0])
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.CreateTopics(kafka.TopicConfig{Topic: name, NumPartitions: 1, ReplicationFactor: 1}))
	require.Eventually(t, func() bool {
		partitions, err := conn.ReadPartitions(name)
		return err == nil && len(partitions) == 1
	}, time.Minute, 50*time.Millisecond, "the broker has it")
	rabbit, err := amqp.Dial(testenv.RabbitMQ(t))
	require.NoError(t, err)
	defer func() { _ = rabbit.Close() }()
	channel, err := rabbit.Channel()
	require.NoError(t, err)
	_, err = channel.QueueDeclare(name, true, false, false, false, nil)
	require.NoError(t, err)
	_, err = natsClient(t, testenv.NATS(t)).CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}})
	require.NoError(t, err)
	for area, c := range map[string]struct{ sink, here, missing string }{
		"kafka":    {fmt.Sprintf("{type: kafka, brokers: [%q]}", testenv.Kafka(t)[0]), name, name + "-none"},
		"rabbitmq": {fmt.Sprintf("{type: rabbitmq, url: %q}", testenv.RabbitMQ(t)), name, name + "-none"},
		"nats":     {fmt.Sprintf("{type: nats, url: %q}", testenv.NATS(t)), "{stream: " + name + ", subject: " + name + "}", "{stream: " + name + "-none, subject: x}"},
	} {
		const format = "redis: {url: \"redis://127.0.0.1:1\"}\nqueues: {orders: {sink: s}}\nsinks: {s: %s}\nadmin: {listen: \"\"}\n" +
			"inlets: {a: {sink: s, from: %s, queue: orders}, b: {sink: s, from: %s, queue: orders, replies: %s}}\n"
		findings := look(t, area, nil, format, c.sink, c.here, c.missing, name+"-replies")
		found := require1(t, findings, "inlet_unread")
		assert.Equal(t, "inlet b", found.Subject, "%+v", findings)
		isTold := false
		for _, f := range findings {
			isTold = isTold || f.Subject != "inlet b" && f.Level.String() == "error"
		}
		assert.True(t, isTold, "replies are missing: %+v", findings)
	}
}
