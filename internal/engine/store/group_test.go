package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// settled bounds how long a group of servers under load may take to go on.
const settled = 90 * time.Second

// groupOptions are those of a bridge.
func groupOptions(addrs []string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addrs, DialTimeout: 2 * time.Second, DialerRetries: 1,
		ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// verbsWork runs every verb on a queue whose shards are on several nodes.
func verbsWork(t *testing.T, rdb redis.UniversalClient, durable store.Durability) {
	t.Helper()
	const shards = 6
	q := remember(t, storetest.New(t, rdb, shards), history)
	var ids []string
	for i := range 60 {
		ids = append(ids, fmt.Sprint("m-", i))
	}
	for _, answer := range q.Producer().Schedule(t.Context(), requests(past(), ids...), false, durable) {
		answered(t, store.Created, answer)
		require.False(t, answer.NotDurable)
	}
	for i, id := range ids {
		found, ok, err := inspect.Get(t.Context(), q, id, "")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, store.Waiting, found.Code)
		switch i % 6 {
		case 0:
			answered(t, store.Done, q.Producer().Cancel(t.Context(), id, "", durable))
			answered(t, store.NotFound, q.Producer().Cancel(t.Context(), id, "", durable))
		case 1:
			answered(t, store.Done, q.Producer().Reschedule(t.Context(), id, "", later(), durable))
		case 2:
			answered(t, store.Waiting, q.Producer().Schedule(t.Context(), requests(later(), id), false, durable)[0])
		case 3:
			answered(t, store.Replaced, q.Producer().Schedule(t.Context(), requests(past(), id), true, durable)[0])
		}
	}
	onceWorks(t, q, durable)
	claimed := settleAll(t, q, shards)
	require.Len(t, claimed, 40)
	for shard := range shards {
		s, err := storetest.Dump(t.Context(), rdb, q.Name(), shard)
		require.NoError(t, err)
		require.NoError(t, s.Check())
	}
	deadWork(t, q, claimed)
	upkeepWorks(t, q, shards)
}

// settleAll claims what is due in each shard; every other one is published,
// the rest is buried.
func settleAll(t *testing.T, q *store.Queue, shards int) (claimed []string) {
	t.Helper()
	for shard := range shards {
		claim, err := q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bridge", Number: 1}, Max: 100, Timeout: never, Lease: lease,
		})
		require.NoError(t, err)
		require.Equal(t, message.ClaimGranted, claim.State)
		s := settlement(claim, acked)
		for i := range s.Verdicts {
			if len(claimed)%2 == 1 {
				s.Verdicts[i] = buried
			}
			claimed = append(claimed, claim.Messages[i].ID)
		}
		stale, err := q.Shard(shard).Settle(t.Context(), s)
		require.NoError(t, err)
		require.False(t, stale)
	}
	return claimed
}

// deadWork redrives one half of the dead letters and purges the other.
func deadWork(t *testing.T, q *store.Queue, claimed []string) {
	t.Helper()
	var dead []string
	require.NoError(t, inspect.NewAdmin(q).DeadLetters(t.Context(), func(d message.DeadLetter) bool {
		dead = append(dead, d.ID)
		return true
	}))
	require.Len(t, dead, len(claimed)/2)
	half := len(dead) / 2
	for i, do := range []func(context.Context, []string) ([]store.Code, error){inspect.NewAdmin(q).Redrive, inspect.NewAdmin(q).Purge} {
		codes, err := do(t.Context(), [][]string{dead[:half], dead[half:]}[i])
		require.NoError(t, err)
		for _, code := range codes {
			require.Equal(t, store.Done, code)
		}
	}
}

func upkeepWorks(t *testing.T, q *store.Queue, shards int) {
	t.Helper()
	live, _, err := q.Members().Heartbeat(t.Context(), "bridge", time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"bridge"}, instancesOf(live))
	require.NoError(t, q.Members().Leave(t.Context(), "bridge"))
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	require.Equal(t, shards, layout.Shards)
	var waiting, published int64
	for shard := range shards {
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		waiting += stats.Waiting
		published += stats.Counters["published"]
		require.Equal(t, "bridge", stats.Holder)
		require.NoError(t, q.Shard(shard).HandOver(t.Context(), "bridge"))
	}
	require.EqualValues(t, 20, waiting, "ten rescheduled, ten redriven")
	require.EqualValues(t, 20, published)
}

// fate is what a producer was told about one message.
type fate struct {
	shard             int
	due               bool // it may be claimed
	scheduled, cancel store.Answer
	cancelled         bool // cancel was asked
	patience, took    time.Duration
	began, ended      time.Time // of both calls; took is schedule's part
}

// soonest is what a call takes at the least of which a second run was made: that
// leaves when the first can no longer happen, after about [store.DefaultTimeout].
const soonest = store.DefaultTimeout / 4

// patient producers see a call through, others give up soon.
const (
	patient = 25 * time.Second
	hasty   = 400 * time.Millisecond
)

// load is producers and a bridge for each shard, which go on whatever happens.
type load struct {
	t       *testing.T
	q       *store.Queue
	shards  int
	durable store.Durability
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	fates   map[string]fate
	durably map[int]int // messages that were confirmed, by shard
	claimed map[string]bool
	errors  map[string]int
}

func startLoad(t *testing.T, q *store.Queue, shards int, durable store.Durability) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{
		t: t, q: q, shards: shards, durable: durable, cancel: cancel, fates: map[string]fate{},
		durably: map[int]int{}, claimed: map[string]bool{}, errors: map[string]int{},
	}
	for shard := range shards {
		for _, patience := range []time.Duration{patient, hasty} {
			l.wg.Go(func() { l.produce(ctx, shard, patience) })
		}
		l.wg.Go(func() { l.consume(ctx, shard) })
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// produce schedules messages of one shard, every other one due, and cancels
// some of the others. A call that has begun goes on to its end.
func (l *load) produce(ctx context.Context, shard int, patience time.Duration) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%d-%v-%d", shard, patience, i)
		if layout.Home("", id, l.shards) != shard {
			continue
		}
		f := fate{shard: shard, due: i%2 == 0, patience: patience, began: time.Now()}
		when := later()
		if f.due {
			when = past()
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		f.scheduled = l.q.Producer().Schedule(call, requests(when, id), false, l.durable)[0]
		cancel()
		f.took = time.Since(f.began)
		if !f.due && i%3 == 0 {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			f.cancel, f.cancelled = l.q.Producer().Cancel(call, id, "", l.durable), true
			cancel()
		}
		f.ended = time.Now()
		l.tell(id, f)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (l *load) tell(id string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[id] = f
	for _, err := range []error{f.scheduled.Err, f.cancel.Err} {
		if err != nil {
			l.errors[err.Error()]++
		}
	}
	if f.scheduled.Err == nil && !f.scheduled.NotDurable {
		l.durably[f.shard]++
	}
}

// consume claims and settles until the end; a claim without an answer is
// repeated with its token.
func (l *load) consume(ctx context.Context, shard int) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for number := uint64(1); ctx.Err() == nil; {
		claim, err := l.q.Shard(shard).Claim(ctx, message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bridge", Number: number}, Max: 100, Timeout: never, Lease: lease,
		})
		if err == nil {
			number++
			l.publish(ctx, shard, claim)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (l *load) publish(ctx context.Context, shard int, claim message.Claim) {
	l.mu.Lock()
	for _, m := range claim.Messages {
		l.claimed[m.ID] = true
	}
	l.mu.Unlock()
	if len(claim.Messages) == 0 {
		return
	}
	s := settlement(claim, acked)
	for ctx.Err() == nil {
		if _, err := l.q.Shard(shard).Settle(ctx, s); err == nil {
			return
		}
		s.Repeated = true
	}
}

// confirmed is how many messages of a shard were confirmed so far.
func (l *load) confirmed(shard int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durably[shard]
}

// goesOn waits until the shards' producers had further messages confirmed.
func (l *load) goesOn(why string, shards ...int) {
	l.t.Helper()
	const more = 10
	before := map[int]int{}
	for _, shard := range shards {
		before[shard] = l.confirmed(shard)
	}
	require.Eventually(l.t, func() bool {
		for _, shard := range shards {
			if l.confirmed(shard) < before[shard]+more {
				return false
			}
		}
		return true
	}, settled, 20*time.Millisecond, why)
}

// check compares what the producers were told with what is there, and returns
// how many calls were refused or unclear.
func (l *load) check(rdb redis.UniversalClient) {
	l.t.Helper()
	present := map[string]bool{}
	for shard := range l.shards {
		s, err := storetest.Dump(l.t.Context(), rdb, l.q.Name(), shard)
		require.NoError(l.t, err)
		require.NoError(l.t, s.Check())
		for id := range s.Msg {
			present[id] = true
		}
	}
	states := map[string]int{}
	for id, f := range l.fates {
		states[l.checkOne(id, f, present[id], l.claimed[id])]++
	}
	l.t.Logf("%d messages, %d claimed: %v; errors %s", len(l.fates), len(l.claimed), states, l.causes())
}

// checkOne returns what the producer was told.
func (l *load) checkOne(id string, f fate, present, claimed bool) string {
	l.t.Helper()
	told := f.scheduled
	gone := f.cancelled && f.cancel.Err == nil && !f.cancel.NotDurable
	switch {
	case errors.Is(told.Err, store.ErrUnknown):
		return "unknown"
	case told.Err != nil:
		require.ErrorIs(l.t, told.Err, store.ErrUnavailable)
		require.False(l.t, present || claimed, "%s: said not to be scheduled", id)
		return "unavailable"
	}
	require.Equal(l.t, store.Created, told.Code, id)
	if told.NotDurable {
		return "not durable"
	}
	if f.cancelled && f.cancel.Err != nil {
		if !errors.Is(f.cancel.Err, store.ErrUnknown) {
			require.ErrorIs(l.t, f.cancel.Err, store.ErrUnavailable)
			require.True(l.t, present, "%s: said not to be cancelled", id)
		}
		return "cancel unclear"
	}
	if f.cancelled {
		// What a second run has scheduled may have had a life before.
		if f.cancel.Code != store.DoneMaybePublished || f.took < soonest {
			require.Equal(l.t, store.Done, f.cancel.Code, "%s, scheduled in %v", id, f.took)
		}
		require.False(l.t, claimed, "%s: never due", id)
	}
	if gone {
		require.False(l.t, present, "%s: said to be cancelled", id)
		return "cancelled"
	}
	if !f.cancelled {
		require.True(l.t, present || f.due && claimed, "%s: confirmed and lost", id)
	}
	return "confirmed"
}

func (l *load) causes() string {
	var list string
	for text, n := range l.errors {
		list += "\n" + strconv.Itoa(n) + " × " + text
	}
	return list
}

// undisturbed fails if a producer of these shards was told anything else than
// that the message was done. Who gives up soon may do so while a node, or the
// machine, is so slow that whoever asks it has to wait.
func (l *load) undisturbed(w *watch, shards ...int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	excused := 0
	for id, f := range l.fates {
		err := errors.Join(f.scheduled.Err, f.cancel.Err)
		switch {
		case !slices.Contains(shards, f.shard) || err == nil:
		case f.patience == hasty && w.slow(f.began, f.ended):
			excused++
		default:
			require.NoError(l.t, err, "%s, for %v", id, f.ended.Sub(f.began))
		}
	}
	l.t.Logf("%d calls met a node that was slow for all, which was seen %d times", excused, len(w.pauses))
}
