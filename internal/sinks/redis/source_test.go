package redis_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// What was handled is owed no more, and is gone from the stream; what a bridge that is
// silent was given comes to another, which is told.
func TestSource(t *testing.T) {
	t.Parallel()
	b := broker{options: at(testenv.StartRedis(t).Addr())}
	topic, group, client := testenv.Name(t, "topic"), "bridges", b.client(t)
	open := func() (goredis.UniversalClient, error) {
		options := b.plain()
		redis.Tune(&options, redis.Config{})
		return b.connect(options), nil
	}
	_, err := redis.NewSource(open, source.Options{Topic: topic})
	require.Error(t, err)
	s, err := redis.NewSource(open, source.Options{Topic: topic, Group: group, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)

	require.NoError(t, client.XGroupCreateMkStream(t.Context(), topic, group, "0").Err())
	sink := b.newSink(t, redis.Config{})
	first := sinktest.NewMessage(t, topic, "")
	first.Body = []byte("given to a bridge that died")
	entry := sinktest.Publish(t, sink, first)[0].Place.Entry
	require.NoError(t, client.XReadGroup(t.Context(), &goredis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{topic, ">"}}).Err())
	require.NoError(t, client.Do(t.Context(), "XCLAIM", topic, group, "dead", 0, entry, "IDLE", time.Hour.Milliseconds(), "JUSTID").Err())
	sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))

	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan source.Delivery, 10)
	var running sync.WaitGroup
	running.Go(func() {
		s.Run(ctx, func(_ context.Context, batch []*source.Delivery) []error {
			for _, d := range batch {
				seen <- *d
			}
			return make([]error, len(batch))
		})
	})
	defer running.Wait()
	defer cancel()
	require.Equal(t, source.Delivery{Body: first.Body, Redelivered: true}, <-seen)
	require.Equal(t, source.Delivery{Body: []byte("body")}, <-seen)
	cancel()
	running.Wait()
	pending, err := client.XPending(t.Context(), topic, group).Result()
	require.NoError(t, err)
	require.Zero(t, pending.Count)
	length, err := client.XLen(t.Context(), topic).Result()
	require.NoError(t, err)
	require.Zero(t, length)
	exists, err := client.Exists(t.Context(), source.DeadTopic(topic)).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, exists)
}
