package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// holder holds the next script that it sees back until it is let go, and counts those
// that pass from then on.
type holder struct {
	hold   atomic.Bool
	held   chan struct{} // of 1: one is held back
	letGo  chan struct{} // of 1
	passed atomic.Int64
	then   func(passed int64) // nil: nobody asks
}

func (h *holder) see(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" {
		return
	}
	if h.hold.CompareAndSwap(true, false) {
		h.passed.Store(0)
		h.held <- struct{}{}
		<-h.letGo
	}
	if passed := h.passed.Add(1); h.then != nil {
		h.then(passed)
	}
}

// ProcessHook implements [redis.Hook].
func (h *holder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.see(cmd)
		return next(ctx, cmd)
	}
}

// DialHook implements [redis.Hook].
func (*holder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (*holder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// callers are concurrent calls of one queue, of which the first is on its way to
// Redis until it is let go, and the others wait for it.
type callers struct {
	testing.TB
	q       *store.Queue
	rdb     *redis.Client
	holder  *holder
	running sync.WaitGroup
	waiting int
}

func newCallers(t testing.TB, shards int) *callers {
	h := &holder{held: make(chan struct{}, 1), letGo: make(chan struct{}, 1)}
	rdb := connect(t, testenvPrivate(t))
	rdb.AddHook(h)
	q := storetest.New(t, hookedClient{rdb}, shards).WithCoalescing()
	_, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	create(t, q, "known", later()) // Redis knows the script.
	require.Equal(t, store.Done, reschedule(t, q, "known", later()))
	require.Equal(t, store.Done, cancel(t, q, "known"))
	return &callers{TB: t, q: q, rdb: rdb, holder: h}
}

// first makes a call that is held back.
func (c *callers) first(call func()) {
	c.holder.hold.Store(true)
	c.running.Go(call)
	<-c.holder.held
}

// join makes a call that waits for others.
func (c *callers) join(call func()) {
	c.waiting++
	c.running.Go(call)
	require.Eventually(c, func() bool { return c.q.InLine() == c.waiting }, settled, time.Millisecond)
}

// release lets the first go, and waits for all.
func (c *callers) release() {
	c.holder.letGo <- struct{}{}
	c.running.Wait()
	require.Zero(c, c.q.InLine())
}

func (c *callers) schedules(ctx context.Context, answer *store.Answer, id, body string) func() {
	return func() {
		*answer = c.q.Producer().Schedule(ctx, []store.Request{{Message: note(id, body), When: later()}}, false, store.Durability{})[0]
	}
}

func (c *callers) isThere(id string) bool {
	_, ok, err := inspect.Get(c.Context(), c.q, id, "")
	require.NoError(c, err)
	return ok
}

// TestCoalescing: what is called while a run is under way becomes one run, and
// each call has its own answer.
func TestCoalescing(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]struct {
		call       func(c *callers, id string) store.Answer
		there, not store.Code
	}{
		"schedule": {func(c *callers, id string) store.Answer {
			return c.q.Producer().Schedule(c.Context(), requests(later(), id), false, store.Durability{})[0]
		}, store.Waiting, store.Created},
		"replace": {func(c *callers, id string) store.Answer {
			return c.q.Producer().Schedule(c.Context(), requests(later(), id), true, store.Durability{})[0]
		}, store.Replaced, store.Created},
		"cancel": {func(c *callers, id string) store.Answer {
			return c.q.Producer().Cancel(c.Context(), id, "", store.Durability{})
		}, store.Done, store.NotFound},
		"reschedule": {func(c *callers, id string) store.Answer {
			return c.q.Producer().Reschedule(c.Context(), id, "", later(), store.Durability{})
		}, store.Done, store.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCallers(t, 1)
			const n = 20
			for i := range n / 2 {
				create(t, c.q, fmt.Sprint(i), later())
			}
			answers := make([]store.Answer, n)
			call := func(i int) func() { return func() { answers[i] = verb.call(c, fmt.Sprint(i)) } }
			c.first(call(0))
			for i := 1; i < n; i++ {
				c.join(call(i))
			}
			c.release()
			require.Equal(t, int64(2), c.holder.passed.Load())
			for i, answer := range answers {
				require.NoError(t, answer.Err)
				want := verb.not
				if i < n/2 {
					want = verb.there
				}
				require.Equal(t, want, answer.Code, i)
			}
			sound(t, c.rdb, c.q)
		})
	}
}

// TestCoalescingOneIdentity: calls for one message that travel together are
// answered as if one had come after the other.
func TestCoalescingOneIdentity(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 1)
	var other store.Answer
	var created, cancelled [5]store.Answer
	c.first(c.schedules(t.Context(), &other, "other", ""))
	for i := range created {
		c.join(c.schedules(t.Context(), &created[i], "a", ""))
	}
	c.release()
	count := func(answers []store.Answer) map[store.Code]int {
		codes := map[store.Code]int{}
		for _, answer := range answers {
			require.NoError(t, answer.Err)
			codes[answer.Code]++
		}
		return codes
	}
	require.Equal(t, map[store.Code]int{store.Created: 1, store.Waiting: 4}, count(created[:]))
	c.waiting = 0
	cancels := func(answer *store.Answer, id string) func() {
		return func() { *answer = c.q.Producer().Cancel(t.Context(), id, "", store.Durability{}) }
	}
	c.first(cancels(&other, "other"))
	for i := range cancelled {
		c.join(cancels(&cancelled[i], "a"))
	}
	c.release()
	require.Equal(t, map[store.Code]int{store.Done: 1, store.NotFound: 4}, count(cancelled[:]))
}

// TestCoalescingDeadlines: a call ends by its own ctx while it waits, with the run
// once it travels, and neither harms the others.
func TestCoalescingDeadlines(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 1)
	var first, left, second, third, short store.Answer
	leads, stopLeading := context.WithCancel(t.Context())
	leaves, leave := context.WithCancel(t.Context())
	c.first(c.schedules(leads, &first, "first", ""))
	c.join(c.schedules(leads, &second, "second", ""))
	c.join(c.schedules(leaves, &left, "left", ""))
	c.join(c.schedules(t.Context(), &third, "third", ""))
	leave()
	c.waiting--
	require.Eventually(t, func() bool { return c.q.InLine() == c.waiting }, settled, time.Millisecond)
	require.Eventually(t, func() bool { // It has little time, so it travels alone; on a busy machine, too little.
		hasty, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		c.schedules(hasty, &short, "short", "")()
		return short.Err == nil
	}, settled, time.Millisecond)
	require.Equal(t, 2, c.q.InLine())
	before := c.holder.passed.Load()
	c.holder.then = func(passed int64) {
		if passed == before+2 { // The second is under way, with the third.
			stopLeading()
		}
	}
	c.release()
	for _, answer := range []store.Answer{first, second, third} {
		require.NoError(t, answer.Err)
		require.Equal(t, store.Created, answer.Code)
	}
	require.ErrorIs(t, left.Err, store.ErrUnavailable)
	require.False(t, c.isThere("left"))
}

// TestCoalescingHurry: calls that have little time share runs with each other, and none
// with those that have enough: nobody's run is cut to what another one has left.
func TestCoalescingHurry(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 1)
	var first, second, short store.Answer
	c.first(c.schedules(t.Context(), &first, "first", ""))
	c.join(c.schedules(t.Context(), &second, "second", ""))
	require.Eventually(t, func() bool { // It waits for neither; on a busy machine it may have too little time.
		hasty, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		c.schedules(hasty, &short, "short", "")()
		return short.Err == nil
	}, settled, time.Millisecond)
	c.release()
	answered(t, store.Created, first)
	answered(t, store.Created, second)
}

// TestCoalescingBounds: what is too much for one script goes with the next, and a
// large batch waits for nobody.
func TestCoalescingBounds(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 1)
	var answers [5]store.Answer
	large := strings.Repeat("x", 400<<10)
	c.first(c.schedules(t.Context(), &answers[0], "0", large))
	for i := 1; i < len(answers); i++ {
		c.join(c.schedules(t.Context(), &answers[i], fmt.Sprint(i), large))
	}
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprint("batch-", i))
	}
	for _, answer := range c.q.Producer().Schedule(t.Context(), requests(later(), ids...), false, store.Durability{}) {
		answered(t, store.Created, answer)
	}
	before := c.holder.passed.Load()
	c.release()
	require.Equal(t, int64(3), c.holder.passed.Load()-before, "one, then two and two")
	for _, answer := range answers {
		answered(t, store.Created, answer)
	}
}

// TestCoalescingShards: a shard that hangs keeps the callers of no other.
func TestCoalescingShards(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 2)
	layout, err := c.q.Layout(t.Context())
	require.NoError(t, err)
	ids := [2][]string{}
	for i := 0; len(ids[0]) < 3 || len(ids[1]) < 3; i++ {
		id := fmt.Sprint("m-", i)
		home := layout.Homes(id, "")[0]
		ids[home] = append(ids[home], id)
	}
	var hangs, waits store.Answer
	c.first(c.schedules(t.Context(), &hangs, ids[0][0], ""))
	c.join(c.schedules(t.Context(), &waits, ids[0][1], ""))
	for _, id := range ids[1][:3] {
		var answer store.Answer
		c.schedules(t.Context(), &answer, id, "")()
		answered(t, store.Created, answer)
	}
	c.release()
	answered(t, store.Created, hangs)
	answered(t, store.Created, waits)
}

// TestCoalescingRefused: where a shard refuses a shared run, each call goes on by itself.
func TestCoalescingRefused(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 1)
	var answers [10]store.Answer
	c.first(c.schedules(t.Context(), &answers[0], "0", ""))
	for i := 1; i < len(answers); i++ {
		c.join(c.schedules(t.Context(), &answers[i], fmt.Sprint(i), ""))
	}
	_, err := store.New(c.rdb, storetest.Prefix, c.q.Name()).Layouts().SetShards(t.Context(), 3)
	require.NoError(t, err)
	c.release()
	for i, answer := range answers {
		answered(t, store.Created, answer)
		require.True(t, c.isThere(fmt.Sprint(i)))
	}
}

// TestCoalescingDurable: calls that wait for replicas travel together, too, and all
// learn that there are none.
func TestCoalescingDurable(t *testing.T) {
	t.Parallel()
	c := newCallers(t, 1)
	durable := store.Durability{Replicas: 1, Timeout: time.Millisecond}
	var answers [50]store.Answer
	for i := range answers {
		c.running.Go(func() {
			answers[i] = c.q.Producer().Schedule(t.Context(), requests(later(), fmt.Sprint(i)), false, durable)[0]
		})
	}
	c.running.Wait()
	for _, answer := range answers {
		answered(t, store.Created, answer)
		require.True(t, answer.NotDurable)
	}
	sound(t, c.rdb, c.q)
}
