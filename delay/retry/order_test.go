package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/internal/engine/store/turns"
)

var errDied = errors.New("the consumer died")

// dying is a client whose caller sometimes dies, before a call or after it.
type dying struct {
	*delay.Client

	random *rand.Rand
}

func (d dying) Schedule(ctx context.Context, m delay.Message, when delay.When, opts ...delay.CallOption) (delay.Result, error) {
	at := d.random.IntN(16)
	if at == 0 {
		return delay.Result{}, errDied
	}
	result, err := d.Client.Schedule(ctx, m, when, opts...)
	if err == nil && at == 1 {
		err = errDied
	}
	return result, err
}

// partition is a partition with one consumer, whose handler fails and who dies at any point: then it begins again at
// what is not committed.
type partition struct {
	t         *testing.T
	random    *rand.Rand
	again     *retry.Retrier
	log       []retry.Message
	committed int
	failures  map[string]int
	firsts    []string // bodies in the order of their first success, or of their end as dead letters
	calls     int
}

var errFailed = errors.New("failed")

func (p *partition) handle(_ context.Context, m retry.Message) error {
	p.calls++
	body := string(m.Body)
	if p.failures[body] > 0 {
		p.failures[body]--
		return errFailed
	}
	if !slices.Contains(p.firsts, body) {
		p.firsts = append(p.firsts, body)
	}
	return nil
}

// consume handles what is there; after a death it has handled what it has not committed.
func (p *partition) consume() {
	for at := p.committed; at < len(p.log); {
		err := p.again.Handle(p.t.Context(), p.log[at], p.handle)
		if err != nil {
			require.ErrorIs(p.t, err, errDied)
			at = p.committed
			continue
		}
		at++
		if p.random.IntN(3) > 0 {
			p.committed = at
		} else if p.random.IntN(8) == 0 { // It dies before it has committed.
			at = p.committed
		}
	}
	p.committed = len(p.log)
}

func newPartition(t *testing.T, queue *delaytest.Queue, seed uint64) *partition {
	t.Helper()
	p := &partition{t: t, random: rand.New(rand.NewPCG(seed, 1)), failures: map[string]int{}} //nolint:gosec // any will do
	p.again = newRetrier(t, dying{queue.Client, p.random}, retry.Policy{
		Limit: 5, Delay: retry.Exponential(time.Second, time.Minute), DeadTopic: "dead", Ordered: true,
	})
	queue.Handle("orders", func(d delaytest.Published) {
		p.log = append(p.log, retry.Message{Topic: d.Topic, Key: d.Key, Headers: d.Headers, Body: d.Body})
	})
	return p
}

func (p *partition) publish(key string, n int) {
	p.log = append(p.log, retry.Message{Name: fmt.Sprint("orders/0/", key, n), Topic: "orders", Key: key, Body: fmt.Appendf(nil, "%s%02d", key, n)})
}

// firstsOf are those of a key.
func (p *partition) firstsOf(key string) []string {
	return slices.DeleteFunc(slices.Clone(p.firsts), func(body string) bool { return body[:1] != key })
}

// TestOrderInTroubles: whatever fails and dies, the messages of a key are handled for the first time in their order, and
// none is lost or held back for ever.
func TestOrderInTroubles(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		queue := delaytest.New(t, "retries")
		p := newPartition(t, queue, seed)
		var dead []string
		queue.Handle("dead", func(d delaytest.Published) { dead = append(dead, string(d.Body)) })
		const each = 12
		for n := range each {
			for _, key := range []string{"a", "b", "c"} {
				body := fmt.Sprintf("%s%02d", key, n)
				if p.random.IntN(4) == 0 {
					p.failures[body] = 1 + p.random.IntN(4)
				}
				p.publish(key, n)
			}
			p.consume()
			queue.Advance(time.Duration(p.random.IntN(3000)) * time.Millisecond)
		}
		for range 100 {
			p.consume()
			queue.Advance(20 * time.Second)
		}
		p.consume()
		for _, key := range []string{"a", "b", "c"} {
			var want []string
			for n := range each {
				want = append(want, fmt.Sprintf("%s%02d", key, n))
			}
			got := p.firstsOf(key)
			require.True(t, slices.IsSorted(got), "seed %d: %s", seed, got)
			for _, body := range dead {
				if body[:1] == key && !slices.Contains(got, body) {
					got = append(got, body)
				}
			}
			slices.Sort(got)
			require.Equal(t, want, got, "seed %d", seed)
			record, err := queue.Turns().Get(t.Context(), "orders", key)
			require.NoError(t, err)
			require.Empty(t, record.Waiting, "seed %d", seed)
		}
		queue.RequireNotScheduled()
	}
}

// TestHeldBack: behind a message that waits, its key's later ones are held back, also when the repetition is published and the
// consumer has not come to it; other keys go on.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	var log []retry.Message
	queue.Handle("orders", func(d delaytest.Published) {
		log = append(log, retry.Message{Topic: d.Topic, Key: d.Key, Headers: d.Headers, Body: d.Body})
	})
	again := newRetrier(t, queue.Client, retry.Policy{Limit: 3, Delay: retry.Exponential(time.Minute, time.Hour), DeadTopic: "dead", Ordered: true})
	var handled []string
	deliver := func(m retry.Message, err error) {
		t.Helper()
		require.NoError(t, again.Handle(t.Context(), m, func(_ context.Context, m retry.Message) error {
			handled = append(handled, string(m.Body))
			return err
		}))
	}
	fresh := func(key string, n int) retry.Message {
		return retry.Message{Name: fmt.Sprint("orders/0/", n), Topic: "orders", Key: key, Body: fmt.Append(nil, n)}
	}
	deliver(fresh("a", 1), errBusy)
	deliver(fresh("a", 2), nil)
	deliver(fresh("b", 3), nil)
	require.Equal(t, []string{"1", "3"}, handled)
	queue.Advance(time.Minute + time.Second)
	require.Len(t, log, 2, "the held one follows its predecessor")
	deliver(fresh("a", 4), nil)
	deliver(fresh("a", 1), nil) // A copy of what was handed over.
	require.Equal(t, []string{"1", "3"}, handled)
	deliver(log[1], nil) // It comes before its predecessor: not yet.
	deliver(log[0], nil)
	queue.Advance(time.Minute)
	require.Len(t, log, 4)
	slices.SortFunc(log[2:], func(a, b retry.Message) int { return int(a.Body[0]) - int(b.Body[0]) })
	deliver(log[2], nil)
	deliver(log[3], nil)
	require.Equal(t, []string{"1", "3", "1", "2", "4"}, handled)
	deliver(fresh("a", 5), nil)
	require.Equal(t, "5", handled[5], "nothing is outstanding")
	require.Empty(t, log[2].Headers[retry.HeaderAttempt], "it has not failed")
}

// TestHold: what never comes holds back its key for no longer than the policy says.
func TestHold(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	again := newRetrier(t, queue.Client, retry.Policy{Limit: 3, DeadTopic: "dead", Ordered: true, Hold: time.Hour})
	m := retry.Message{Name: "orders/0/1", Topic: "orders", Key: "a"}
	require.NoError(t, again.Handle(t.Context(), m, func(context.Context, retry.Message) error { return errBusy }))
	for _, info := range queue.Scheduled("orders") {
		require.NoError(t, queue.Cancel(t.Context(), delay.Ref{ID: info.Message.ID, Key: info.Message.Key}))
	}
	handled := 0
	count := func(context.Context, retry.Message) error { handled++; return nil }
	m.Name = "orders/0/2"
	require.NoError(t, again.Handle(t.Context(), m, count))
	require.Zero(t, handled)
	queue.Advance(time.Hour + time.Second)
	m.Name = "orders/0/3"
	require.NoError(t, again.Handle(t.Context(), m, count))
	require.Zero(t, handled, "the second one was published, and is to be handled first")
	var last retry.Message
	for _, p := range queue.Published("orders") {
		last = retry.Message{Topic: p.Topic, Key: p.Key, Headers: p.Headers}
	}
	require.NoError(t, again.Handle(t.Context(), last, count))
	require.Equal(t, 1, handled)
}

// TestCrowded: a key has at most so many outstanding messages.
func TestCrowded(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	again := newRetrier(t, queue.Client, retry.Policy{Limit: 3, DeadTopic: "dead", Ordered: true})
	none, err := queue.Turns().Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	waiting := make([]turns.Waiting, turns.Most-1)
	for n := range waiting {
		waiting[n] = turns.Waiting{Origin: fmt.Sprint(n), Stay: "s", Number: 1, DueMs: none.At.UnixMilli()}
	}
	_, err = queue.Turns().Put(t.Context(), "orders", "a", none, waiting, time.Hour)
	require.NoError(t, err)
	fail := func(context.Context, retry.Message) error { return errBusy }
	require.NoError(t, again.Handle(t.Context(), retry.Message{Name: "the last", Topic: "orders", Key: "a"}, fail))
	err = again.Handle(t.Context(), retry.Message{Name: "one more", Topic: "orders", Key: "a"}, fail)
	require.ErrorIs(t, err, retry.ErrCrowded)
}

func TestOrderedPolicy(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "retries")
	for text, policy := range map[string]retry.Policy{
		"dead topic": {Limit: 1, Ordered: true},
		"hold 1s":    {Limit: 1, Ordered: true, DeadTopic: "dead", Hold: time.Second},
	} {
		_, err := retry.New(queue, policy)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
	_, err := retry.New(unnamed{queue}, retry.Policy{Limit: 1, Ordered: true, DeadTopic: "dead"})
	require.ErrorIs(t, err, delay.ErrInvalid)
	r := newRetrier(t, queue, retry.Policy{Limit: 1, Ordered: true, DeadTopic: "dead"})
	_, err = r.Retry(t.Context(), retry.Message{Name: "n", Topic: "t", Key: "k"}, nil)
	require.ErrorIs(t, err, delay.ErrInvalid)
	calls := 0
	require.NoError(t, r.Handle(t.Context(), retry.Message{Name: "n", Topic: "t"}, func(context.Context, retry.Message) error { calls++; return errBusy }))
	require.Equal(t, 1, calls)
	require.Len(t, queue.Scheduled(), 1, "without a key it is delivered again without order")
}
