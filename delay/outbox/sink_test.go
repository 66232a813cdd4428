package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// notOfKafka are messages that the queue of a [fastPath] could never take.
var notOfKafka = map[string]delay.Message{
	"topic": {ID: "topic", Topic: "no kafka topic"},
	"large": {ID: "large", Topic: "t", Body: make([]byte, 1001)},
}

// TestScheduleKnowsTheSinkFromRedis has messages that are due long after the horizon:
// nothing else would look at them until then.
func TestScheduleKnowsTheSinkFromRedis(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		f := newFastPath(t, db)
		tx := f.begin(t)
		schedule := func(tx outbox.Tx, m delay.Message) error {
			_, err := f.box.Schedule(t.Context(), tx, "orders", m, delay.After(90*24*time.Hour))
			return err
		}
		unasked := notOfKafka["topic"]
		unasked.ID = "unasked"
		require.NoError(t, schedule(tx, unasked), "nobody was asked: the bridge refuses it")
		tracked := f.box.Track(tx)
		for name, m := range notOfKafka {
			_, want := f.client.Schedule(t.Context(), m, delay.After(time.Hour))
			require.ErrorIs(t, want, delay.ErrInvalid)
			require.EqualError(t, schedule(tracked, m), want.Error(), name)
			require.EqualError(t, schedule(tx, m), want.Error(), "%s: it is known now", name)
			require.ErrorIs(t, schedule(tracked, m), delay.ErrInvalid)
		}
		require.NoError(t, schedule(tracked, delay.Message{ID: "good", Topic: "t"}), "the transaction goes on")
		require.NoError(t, tx.Commit())
		require.Equal(t, int64(2), f.number(t, "SELECT count(*) FROM delay_outbox"))
	})
}

// TestScheduleLearnsOfAnotherSink: what is refused by a sink that was changed is
// accepted soon, and the reverse.
func TestScheduleLearnsOfAnotherSink(t *testing.T) {
	t.Parallel()
	db, _ := newPostgres(t)
	f := newFastPath(t, db)
	schedule := func(topic string) error {
		_, err := f.box.Schedule(t.Context(), f.box.Track(f.database), "orders", delay.Message{Topic: topic}, delay.After(time.Minute))
		return err
	}
	require.NoError(t, schedule("a..b"))
	require.ErrorIs(t, schedule("a/b"), delay.ErrInvalid)
	_, err := f.queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 4, Sink: message.NATS, MaxMessage: 1000})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return schedule("a/b") == nil }, 2*time.Minute, 10*time.Millisecond)
	require.ErrorIs(t, schedule("a..b"), delay.ErrInvalid)
}

func TestScheduleIsToldTheSink(t *testing.T) {
	t.Parallel()
	db, _ := newPostgres(t)
	box := outbox.New(outbox.PostgreSQL, outbox.WithSink("orders", outbox.Kafka), outbox.WithSink("mails", outbox.NATS))
	schedule := func(queue, topic string) error {
		_, err := box.Schedule(t.Context(), db, queue, delay.Message{Topic: topic}, delay.After(time.Hour))
		return err
	}
	require.ErrorIs(t, schedule("orders", "a/b"), delay.ErrInvalid)
	require.NoError(t, schedule("orders", "a..b"))
	require.ErrorIs(t, schedule("mails", "a..b"), delay.ErrInvalid)
	require.NoError(t, schedule("mails", "a/b"))
	require.NoError(t, schedule("others", "a/b..c"))

	for _, bad := range []outbox.Option{outbox.WithSink("Orders", outbox.Kafka), outbox.WithSink("orders", "oracle"), outbox.WithSink("orders", "")} {
		box = outbox.New(outbox.PostgreSQL, bad)
		require.ErrorIs(t, schedule("orders", "t"), delay.ErrInvalid)
	}
}
