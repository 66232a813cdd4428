package delay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// broker is a publisher that remembers.
type broker struct {
	mu       sync.Mutex
	topics   []string
	messages []*compensation.Message
	fail     error
}

func (b *broker) publish(_ context.Context, topic string, _ map[string]string, body []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := compensation.Decode(body)
	b.topics, b.messages = append(b.topics, topic), append(b.messages, m)
	return errors.Join(b.fail, err)
}

// faultyRedis is a Redis that refuses scripts while refusal is set, or cuts the
// connection where it begins with "cut"; what follows refuses the next one.
type faultyRedis struct {
	*miniredis.Miniredis
	rdb     *redis.Client
	refusal atomic.Pointer[string]
}

func newFaulty(t *testing.T) *faultyRedis {
	t.Helper()
	f := &faultyRedis{Miniredis: miniredis.RunT(t)}
	f.rdb = redis.NewClient(&redis.Options{Addr: f.Addr(), DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { assert.NoError(t, f.rdb.Close()) })
	_, err := makeLayout(t.Context(), f.rdb, "delay", message.NATS)
	require.NoError(t, err)
	f.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		refusal := f.refusal.Load()
		if refusal == nil || command != "EVALSHA" && command != "EVAL" {
			return false
		}
		if next, cut := strings.CutPrefix(*refusal, "cut"); cut {
			peer.Close()
			if next = strings.TrimPrefix(next, ", then "); next != "" {
				f.refuse(next)
			}
		} else {
			peer.WriteError(*refusal)
		}
		return true
	})
	return f
}

func (f *faultyRedis) refuse(refusal string) { f.refusal.Store(&refusal) }

func (f *faultyRedis) client(t *testing.T, b *broker, options ...delay.Option) *delay.Client {
	t.Helper()
	client, err := delay.NewClient(f.rdb, "orders", append([]delay.Option{
		delay.WithTimeout(time.Second), delay.WithCompensation(b.publish),
	}, options...)...)
	require.NoError(t, err)
	return client
}

func one(id string) delay.Message { return delay.Message{ID: id, Topic: "order.timeout"} }

func TestCompensationWhereRedisIsFull(t *testing.T) {
	t.Parallel()
	f, b := newFaulty(t), &broker{}
	f.SetTime(time.UnixMilli(1_900_000_000_000)) // Redis' clock is not ours.
	client := f.client(t, b)
	_, err := client.Get(t.Context(), delay.Ref{ID: "x"})
	require.ErrorIs(t, err, delay.ErrNotFound)
	f.refuse("OOM command not allowed when used memory > 'maxmemory'.")
	m := delay.Message{ID: "a", Key: "k", Topic: "order.timeout", Headers: map[string]string{"h": "v"}, Body: []byte{0xff}}
	result, err := client.Schedule(t.Context(), m, delay.After(time.Minute))
	require.NoError(t, err)
	require.Equal(t, delay.Compensated, result.Status)
	require.Equal(t, []string{"delay.compensation.orders"}, b.topics)
	sent := b.messages[0]
	require.Equal(t, compensation.KindMessage, sent.Kind)
	require.Equal(t, "orders", sent.Queue)
	require.Equal(t, "~~", sent.Token[:2])
	require.Equal(t, &message.Message{ID: "a", Key: "k", Topic: m.Topic, Headers: m.Headers, Body: m.Body}, sent.Content())
	require.WithinDuration(t, time.UnixMilli(1_900_000_060_000), sent.DueAt, 30*time.Second, "by Redis' clock")
	require.Equal(t, compensation.Validity, sent.ValidUntil.Sub(sent.DueAt.Add(-time.Minute)).Round(time.Second))
	require.Equal(t, result.DueAt, sent.DueAt)

	_, err = client.Schedule(t.Context(), m, delay.At(time.UnixMilli(1_900_000_000_001)))
	require.NoError(t, err)
	require.Equal(t, time.UnixMilli(1_900_000_000_001), b.messages[1].DueAt, "an instant stays what it is")
	require.NotEqual(t, sent.Token, b.messages[1].Token)
}

// TestCompensationWithoutLayout: Redis has never answered. The queue's limits
// are not known, those of all queues hold.
func TestCompensationWithoutLayout(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer func() { require.NoError(t, rdb.Close()) }()
	b := &broker{}
	client, err := delay.NewClient(rdb, "orders", delay.WithTimeout(4*time.Second),
		delay.WithCompensation(b.publish), delay.WithCompensationTopic("theirs"))
	require.NoError(t, err)
	began := time.Now()
	results, err := client.ScheduleBatch(t.Context(), []delay.Request{
		{Message: delay.Message{Topic: "order.timeout"}, When: delay.After(time.Minute)},
		{Message: delay.Message{ID: " bad", Topic: "order.timeout"}},
		{Message: one("far"), When: delay.After(1 << 62)},
	})
	require.NoError(t, err, "items were tried")
	require.Less(t, time.Since(began), 4*time.Second, "Redis gets half of the time")
	require.NoError(t, results[0].Err)
	require.Equal(t, delay.Compensated, results[0].Status)
	require.NotEmpty(t, results[0].Ref.ID)
	require.WithinDuration(t, began.Add(time.Minute), results[0].DueAt, 30*time.Second)
	require.ErrorIs(t, results[1].Err, delay.ErrInvalid)
	require.ErrorIs(t, results[2].Err, delay.ErrInvalid)
	require.Equal(t, []string{"theirs"}, b.topics)
	require.Equal(t, results[0].Ref.ID, b.messages[0].ID)
}

// TestNoCompensation: what may have happened, or has an answer, is not sent.
func TestNoCompensation(t *testing.T) {
	t.Parallel()
	f, b := newFaulty(t), &broker{}
	client := f.client(t, b)
	patient := f.client(t, b, delay.WithTimeout(20*time.Second))
	_, err := patient.Get(t.Context(), delay.Ref{ID: "a"})
	require.ErrorIs(t, err, delay.ErrNotFound)
	result, err := client.Schedule(t.Context(), one("a"), delay.After(time.Hour))
	require.NoError(t, err)
	require.Equal(t, delay.Created, result.Status)
	_, err = client.Schedule(t.Context(), one("a"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrDuplicate)
	_, err = client.Schedule(t.Context(), one(" b"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrInvalid)

	f.refuse("cut")
	_, err = client.Schedule(t.Context(), one("b"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrUnknown)

	// The first run may have happened, the second one has not: still nobody knows.
	f.refuse("cut, then OOM full")
	_, err = patient.Schedule(t.Context(), one("c"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrUnknown)
	require.Empty(t, b.messages)

	f.refuse("OOM full")
	_, err = f.client(t, b, delay.WithConflict(delay.Replace)).Schedule(t.Context(), one("b"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrUnavailable)

	f.refuse("LOADING Redis is loading the dataset in memory")
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = client.Schedule(gone, one("b"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrUnavailable, "the caller has gone")
	require.Empty(t, b.messages)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	result, err = client.Schedule(ctx, one("b"), delay.After(time.Hour))
	require.NoError(t, err, "the caller's deadline leaves time for the broker")
	require.Equal(t, delay.Compensated, result.Status)
}

func TestCompensationFails(t *testing.T) {
	t.Parallel()
	cause := errors.New("broker is away, too")
	f, b := newFaulty(t), &broker{fail: cause}
	client := f.client(t, b)
	f.refuse("LOADING Redis is loading the dataset in memory")
	result, err := client.Schedule(t.Context(), one("a"), delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrUnavailable)
	require.ErrorIs(t, err, delay.ErrUnknown, "the broker may have it")
	require.ErrorIs(t, err, cause)
	require.Empty(t, result.Status)
	began := time.Now()
	_, err = client.Schedule(t.Context(), one("a"), delay.After(time.Minute), delay.Repeat(err))
	require.ErrorIs(t, err, delay.ErrUnknown)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond, "a loop over it is no busy one")
}

// TestCompensationOfABatch: a message for each item, some at a time.
func TestCompensationOfABatch(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	var running, most, calls atomic.Int64
	gate := make(chan struct{})
	client, err := delay.NewClient(f.rdb, "orders", delay.WithTimeout(20*time.Second),
		delay.WithCompensation(func(context.Context, string, map[string]string, []byte) error {
			now := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); now > seen; seen = most.Load() {
				most.CompareAndSwap(seen, now)
			}
			if now == 16 && calls.Load() == 0 {
				close(gate) // Only the first 16 wait: none follows before.
			}
			<-gate
			if calls.Add(1) == 50 {
				return errors.New("this one not")
			}
			return nil
		}))
	require.NoError(t, err)
	_, err = client.Get(t.Context(), delay.Ref{ID: "x"})
	require.ErrorIs(t, err, delay.ErrNotFound)
	f.refuse("OOM full")
	requests := make([]delay.Request, 100)
	for i := range requests {
		requests[i] = delay.Request{Message: one(fmt.Sprint(i)), When: delay.After(time.Hour)}
	}
	results, err := client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	failed := 0
	for _, result := range results {
		if result.Err != nil {
			failed++
			require.ErrorIs(t, result.Err, delay.ErrFull)
		}
	}
	require.Equal(t, 1, failed)
	require.EqualValues(t, 16, most.Load())
}
