package app

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestANackIsToldToProducers has two queues of RabbitMQ bound to a topic, one of them
// full: the broker nacks each publish, and the other queue has a copy of each. A cancel
// must not say that nothing was published (I11), and waiting uses up no attempt.
func TestANackIsToldToProducers(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	require.NoError(t, err)
	for queue, arguments := range map[string]amqp.Table{topic + ".full": {"x-max-length": 0, "x-overflow": "reject-publish"}, topic + ".other": nil} {
		_, err := channel.QueueDeclare(queue, true, false, false, false, arguments)
		require.NoError(t, err)
		require.NoError(t, channel.QueueBind(queue, topic, "amq.topic", false, nil))
	}
	redisURL, prefix := testenv.Redis(t), testenv.Name(t, "p")
	bridgeFor(t, parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 1, sink: events, retry: {attempts: 1}}}\nsinks: {events: {type: rabbitmq, url: %q, exchange: amq.topic}}\nadmin: {listen: \"\"}\ndrain_timeout: 5s\n",
		prefix, redisURL, url))
	rdb, err := parse(t, redisOnly, fmt.Sprintf("{url: %q}", redisURL)).Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
	require.NoError(t, err)

	queue, ref := store.New(rdb, prefix, "orders"), delay.Ref{ID: "nacked"}
	require.Eventually(t, func() bool {
		if _, err := queue.Layout(t.Context()); err != nil {
			return false
		}
		_, err := client.Schedule(t.Context(), delay.Message{ID: ref.ID, Topic: topic}, delay.After(0))
		return err == nil
	}, time.Minute, 10*time.Millisecond, "the bridge makes the layout")
	var stats inspect.ShardStats
	require.Eventually(t, func() bool {
		state, err := channel.QueueDeclarePassive(topic+".other", true, false, false, false, nil)
		require.NoError(t, err)
		stats, err = inspect.NewAdmin(queue).Stats(t.Context(), 0)
		return err == nil && state.Messages >= 6 && stats.InFlight == 0
	}, time.Minute, 10*time.Millisecond, "each probe leaves a copy")
	assert.Zero(t, stats.Dead, "no attempt is used up")
	require.ErrorIs(t, client.Cancel(t.Context(), ref), delay.ErrMaybePublished)
}
