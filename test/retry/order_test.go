package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/retry/consumers"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	orderKeys   = 10
	ofEachKey   = 20
	orderLimit  = 4
	hopelessOne = "07" // of each key
)

// ends are how the messages of a run ended: bodies, in the order of their first success or last failure.
type ends struct {
	mu       sync.Mutex
	failures map[string]int
	list     []string
	is       map[string]bool
	calls    int
	done     chan struct{}
}

var errFailed = errors.New("failed")

// handle fails some messages a few times, and one of each key always.
func (e *ends) handle(_ context.Context, m retry.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	body := string(m.Body)
	isHopeless := strings.HasSuffix(body, hopelessOne)
	if e.failures[body] > 0 || isHopeless && m.Attempt() < orderLimit {
		e.failures[body]--
		return errFailed
	}
	if !e.is[body] {
		e.is[body] = true
		if e.list = append(e.list, body); len(e.list) == orderKeys*ofEachKey {
			close(e.done)
		}
	}
	if isHopeless {
		return errFailed
	}
	return nil
}

// mortal is a client whose caller sometimes dies after a call.
type mortal struct{ *delay.Client }

func (c mortal) Schedule(ctx context.Context, m delay.Message, when delay.When, opts ...delay.CallOption) (delay.Result, error) {
	result, err := c.Client.Schedule(ctx, m, when, opts...)
	if err == nil && rand.IntN(150) == 0 { //nolint:gosec // any will do
		err = consumers.ErrDied
	}
	return result, err
}

// TestOrder: the messages of a key end in their order, though some fail and come back later, consumers of a group die, and the
// bridge is killed; none is lost.
func TestOrder(t *testing.T) {
	t.Parallel()
	binary, err := trial.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	w, err := trial.NewWorld(t.Context(), trial.Options{Binary: binary, Broker: "kafka", Shards: 2})
	require.NoError(t, err)
	defer w.Close()
	const dead = "dead-letters"
	require.NoError(t, w.Broker.MakeTopic(t.Context(), dead))
	again, err := retry.New(mortal{w.Client}, retry.Policy{
		Limit: orderLimit, Delay: retry.Exponential(50*time.Millisecond, time.Second), DeadTopic: dead, Ordered: true,
	})
	require.NoError(t, err)
	e := &ends{failures: map[string]int{}, is: map[string]bool{}, done: make(chan struct{})}
	var all []string
	for n := range ofEachKey {
		for key := range orderKeys {
			body := fmt.Sprintf("%d/%02d", key, n)
			if all = append(all, body); rand.IntN(4) == 0 { //nolint:gosec // any will do
				e.failures[body] = 1 + rand.IntN(orderLimit) //nolint:gosec // any will do
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for range 2 {
		group.Go(func() {
			consumers.Revive(ctx, t, func(ctx context.Context) error {
				reader := kafka.NewReader(kafka.ReaderConfig{
					Brokers: []string{w.Broker.Server().Addr()}, Topic: w.Topic, GroupID: "consumers", StartOffset: kafka.FirstOffset,
					MaxWait: 50 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond, RebalanceTimeout: 5 * time.Second,
				})
				return errors.Join(consumeKafka(ctx, reader, again, e.handle), reader.Close())
			})
		})
	}
	// A key has the partition that the bridge gives it.
	writer := &kafka.Writer{
		Addr: kafka.TCP(w.Broker.Server().Addr()), Topic: w.Topic, Balancer: kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
	}
	defer func() { _ = writer.Close() }()
	for i, body := range all {
		key, _, _ := strings.Cut(body, "/")
		require.NoError(t, writer.WriteMessages(t.Context(), kafka.Message{Key: []byte(key), Value: []byte(body)}))
		if i == len(all)/2 {
			require.NoError(t, w.Bridge.Kill())
			require.NoError(t, w.Bridge.Start(t.Context()))
		}
	}
	select {
	case <-e.done:
	case <-time.After(4 * time.Minute):
		t.Error("messages are missing")
	}
	require.Eventually(t, func() bool {
		stored, err := w.Broker.Stored(t.Context(), dead)
		return err == nil && stored >= orderKeys
	}, time.Minute, 50*time.Millisecond)
	stop()
	group.Wait()
	for key := range orderKeys {
		ofKey := slices.DeleteFunc(slices.Clone(e.list), func(body string) bool { return !strings.HasPrefix(body, fmt.Sprint(key, "/")) })
		require.Len(t, ofKey, ofEachKey)
		require.True(t, slices.IsSorted(ofKey), "%s", ofKey)
	}
	stored, err := w.Broker.Stored(t.Context(), dead)
	require.NoError(t, err)
	require.EqualValues(t, orderKeys, stored)
	t.Logf("%d messages were handled %d times", len(all), e.calls)
}
