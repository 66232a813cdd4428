package retry_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
	"github.com/delaybridge/delaybridge/delay/retry"
)

var errBusy = errors.New("the shop\nis busy")

func newRetrier(t *testing.T, queue delay.Scheduler, policy retry.Policy) *retry.Retrier {
	t.Helper()
	r, err := retry.New(queue, policy)
	require.NoError(t, err)
	return r
}

// TestRetry consumes what it cannot handle: it comes back with growing delays, and ends as a dead letter.
func TestRetry(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	r := newRetrier(t, queue, retry.Policy{Limit: 3, Delay: retry.Exponential(time.Minute, 3*time.Minute), DeadTopic: "dead"})
	start := queue.Now()
	first := retry.Message{
		Name: "orders/0/17", Topic: "orders", Key: "k", Body: []byte("body"),
		Headers: map[string]string{"own": "x", "delay-uid": "other", "Nats-Msg-Id": "m", "CC": "a"},
	}
	var attempts []int
	queue.Handle("orders", func(p delaytest.Published) {
		m := retry.Message{Topic: p.Topic, Key: p.Key, Headers: p.Headers, Body: p.Body}
		attempts = append(attempts, m.Attempt())
		require.Equal(t, "orders/0/17", p.Headers[retry.HeaderOrigin])
		require.Equal(t, "the shop is busy", p.Headers[retry.HeaderError])
		require.Equal(t, "x", p.Headers["own"])
		_, err := r.Retry(t.Context(), m, errBusy)
		require.NoError(t, err)
	})
	out, err := r.Retry(t.Context(), first, errBusy)
	require.NoError(t, err)
	require.Equal(t, 1, out.Attempt)
	require.False(t, out.IsDead)
	require.WithinDuration(t, start.Add(time.Minute), out.DueAt, time.Millisecond)
	var after []time.Duration
	for _, p := range queue.Advance(time.Hour) {
		after = append(after, p.At.Sub(start).Round(time.Second))
	}
	require.Equal(t, []int{1, 2, 3}, attempts)
	require.Equal(t, []time.Duration{time.Minute, 3 * time.Minute, 6 * time.Minute, 6 * time.Minute}, after)
	dead := queue.RequirePublished("dead")
	require.Equal(t, "orders", dead.Headers[retry.HeaderTopic])
	require.Equal(t, "3", dead.Headers[retry.HeaderAttempt])
	require.Equal(t, "body", string(dead.Body))
	queue.RequireNotScheduled()
}

// TestRetryTwice: a delivery that comes twice, since its acknowledgement was lost, comes back once, also after
// what it had scheduled was published.
func TestRetryTwice(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	m := retry.Message{Name: "orders/0/17", Topic: "orders"}
	count := func(client delay.Scheduler) int {
		r := newRetrier(t, client, retry.Policy{Limit: 3})
		for range 2 {
			_, err := r.Retry(t.Context(), m, nil)
			require.NoError(t, err)
		}
		return len(queue.Advance(time.Hour))
	}
	require.Equal(t, 1, count(queue))
	require.Equal(t, 0, count(queue), "it was delivered again already")
	m.Name = "orders/0/18"
	for range 2 {
		require.Equal(t, 1, count(unnamed{queue}), "without a name it is known while it waits")
	}
}

// unnamed is a queue that has forgotten all names.
type unnamed struct{ delay.Scheduler }

func (u unnamed) Schedule(ctx context.Context, m delay.Message, when delay.When, _ ...delay.CallOption) (delay.Result, error) {
	return u.Scheduler.Schedule(ctx, m, when)
}

// TestNames: what the bridge has published has a name; long ones are hashed, and differ.
func TestNames(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	r := newRetrier(t, queue, retry.Policy{Limit: 3})
	refs := map[delay.Ref]bool{}
	for _, m := range []retry.Message{
		{Name: strings.Repeat("a", 300), Topic: "t"},
		{Name: strings.Repeat("a", 301), Topic: "t"},
		{Topic: "t", Headers: map[string]string{delay.HeaderUID: "u"}},
	} {
		out, err := r.Retry(t.Context(), m, errors.New(strings.Repeat("ü\x00", 300)))
		require.NoError(t, err)
		refs[out.Ref] = true
	}
	require.Len(t, refs, 3)
	_, err := r.Retry(t.Context(), retry.Message{Topic: "t"}, nil)
	require.ErrorIs(t, err, delay.ErrInvalid)
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	r := newRetrier(t, queue, retry.Policy{Limit: 1})
	_, err := r.Retry(t.Context(), retry.Message{Name: "n", Topic: "t", Headers: map[string]string{retry.HeaderAttempt: "1"}}, nil)
	require.ErrorIs(t, err, retry.ErrExhausted)
	queue.RequireNothing()
	for _, limit := range []int{0, 1001} {
		_, err := retry.New(queue, retry.Policy{Limit: limit})
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, "limit "+strconv.Itoa(limit))
	}
}

func TestExponential(t *testing.T) {
	t.Parallel()
	d := retry.Exponential(time.Second, 10*time.Second)
	for n, want := range map[int]time.Duration{0: 1, 1: 1, 2: 2, 4: 8, 5: 10, 1000: 10} {
		require.Equal(t, want*time.Second, d(n), n)
	}
}
