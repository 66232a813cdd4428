package app

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/test/natstest"
)

// electionProducer is a producer of a bridge whose stream's leaders move.
type electionProducer struct {
	t       *testing.T
	cluster *natstest.Cluster
	queue   *store.Queue
	client  *delay.Client
	topic   string

	mu      sync.Mutex
	due     map[string]time.Time // of what was accepted
	answers map[string]error     // to cancels
}

func newElecting(t *testing.T) *electionProducer {
	t.Helper()
	e := &electionProducer{t: t, cluster: natstest.New(t), topic: testenv.Name(t, "topic"), due: map[string]time.Time{}, answers: map[string]error{}}
	e.cluster.Stream(e.topic)
	cfg := parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 2, sink: events}}\nsinks: {events: {type: nats, url: %q, user: %q, password: %q, publish_timeout: 2s}}\nadmin: {listen: \"\"}\ndrain_timeout: 5s\n",
		testenv.Name(t, "p"), testenv.Redis(t), e.cluster.URL(), natstest.User, natstest.Password)
	bridgeFor(t, cfg)
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	e.queue = store.New(rdb, cfg.Prefix, "orders")
	e.client, err = delay.NewClient(rdb, "orders", delay.WithPrefix(cfg.Prefix))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := e.queue.Layout(t.Context())
		return err == nil
	}, time.Minute, 10*time.Millisecond, "the bridge makes the layout")
	return e
}

// ref names a message of one of ten Keys.
func ref(number int) delay.Ref {
	return delay.Ref{ID: fmt.Sprintf("%06d", number), Key: fmt.Sprintf("key-%d", number%10)}
}

// produce schedules a hundred messages, from that number on, that are due within a second,
// and cancels some that were scheduled before, whatever has become of them.
func (e *electionProducer) produce(number int) {
	batch := make([]delay.Request, 100)
	for i := range batch {
		r := ref(number + i)
		batch[i] = delay.Request{
			Message: delay.Message{ID: r.ID, Key: r.Key, Topic: e.topic},
			When:    delay.After(time.Second + time.Duration(i)*10*time.Millisecond),
		}
	}
	results, err := e.client.ScheduleBatch(e.t.Context(), batch)
	assert.NoError(e.t, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range results {
		assert.NoError(e.t, r.Err)
		e.due[r.Ref.ID] = r.DueAt
	}
	for _, before := range []int{300, 800} { // 1.5 and 4 s: half of them are due, all of them are
		for i := number - before + before/300; i >= 0 && i < number-before+100; i += 5 {
			e.answers[ref(i).ID] = e.client.Cancel(e.t.Context(), ref(i))
		}
	}
}

// waiting is how many messages are not settled.
func (e *electionProducer) waiting() (n int64) {
	e.t.Helper()
	for shard := range 2 {
		stats, err := inspect.NewAdmin(e.queue).Stats(e.t.Context(), shard)
		require.NoError(e.t, err)
		require.Zero(e.t, stats.Dead)
		n += stats.Waiting + stats.InFlight
	}
	return n
}

// check holds what the producer was told against what the stream has (I1, I2, I11, I15).
func (e *electionProducer) check() {
	e.t.Helper()
	stream, err := e.cluster.JetStream().Stream(e.t.Context(), e.topic)
	require.NoError(e.t, err)
	consumer, err := stream.OrderedConsumer(e.t.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(e.t, err)
	messages, err := consumer.Messages()
	require.NoError(e.t, err)
	defer messages.Stop()
	copies, last := map[string]int{}, map[string]string{}
	for range stream.CachedInfo().State.Msgs {
		m, err := messages.Next(jetstream.NextMaxWait(2 * time.Minute))
		require.NoError(e.t, err)
		at, err := m.Metadata()
		require.NoError(e.t, err)
		id := m.Headers().Get(message.HeaderID)
		key := id[len(id)-1:] // as ref says
		require.False(e.t, at.Timestamp.Before(e.due[id]), "%s is early", id)
		if copies[id]++; errors.Is(e.answers[id], delay.ErrMaybePublished) {
			continue // Nobody publishes it again, so a copy that lay in a stopped server comes at any time.
		}
		before := last[key]
		require.True(e.t, before == "" || e.due[before].Before(e.due[id]) || e.due[before].Equal(e.due[id]) && before < id,
			"%s, due at %v, is behind %s, due at %v", id, e.due[id], before, e.due[before])
		last[key] = id
	}
	told := map[string]int{}
	for id := range e.due {
		answer, isAsked := e.answers[id]
		least, most := 1, 1
		switch {
		case !isAsked, errors.Is(answer, delay.ErrTooLate), errors.Is(answer, delay.ErrNotFound):
		case errors.Is(answer, delay.ErrMaybePublished):
			least = 0
		default:
			require.NoError(e.t, answer)
			least, most = 0, 0
		}
		require.True(e.t, least <= copies[id] && copies[id] <= most, "%s: %d copies, cancelled: %v, %v", id, copies[id], isAsked, answer)
		if isAsked {
			told[fmt.Sprintf("%v, %d stored", answer, copies[id])]++
		}
	}
	e.t.Logf("%d messages, %d in the stream, answers to cancels: %v", len(e.due), len(copies), told)
}

// TestMovingLeaders deposes, kills and leaves alone the leader of a stream of three replicas
// while messages become due and are cancelled: all are stored once, in order, not early, and
// no cancel says done of one that is stored.
func TestMovingLeaders(t *testing.T) {
	t.Parallel()
	e := newElecting(t)
	stop, producing := make(chan struct{}), sync.WaitGroup{}
	producing.Go(func() {
		turn := time.NewTicker(500 * time.Millisecond)
		defer turn.Stop()
		for number := 0; ; number += 100 {
			e.produce(number)
			select {
			case <-turn.C:
			case <-stop:
				return
			}
		}
	})
	moving := func(moves ...func(string)) {
		defer producing.Wait()
		defer close(stop)
		for _, move := range moves {
			move(e.topic)
		}
	}
	depose, alone := e.cluster.Depose, func(stream string) { e.cluster.LeaveAlone(stream, 5*time.Second) }
	moving(depose, alone, depose, e.cluster.Kill, e.cluster.DeposeBoth, alone, depose, e.cluster.Stop, depose, e.cluster.KillAll, alone, depose, depose)
	require.Eventually(t, func() bool { return e.waiting() == 0 }, 2*time.Minute, 50*time.Millisecond)
	e.check()
}
