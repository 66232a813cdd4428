package recurring

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a queue on a real Redis.
type world struct {
	*Schedules
	t *testing.T
	q *store.Queue
}

func newWorld(t *testing.T) *world {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	q := storetest.New(t, rdb, 3)
	return &world{New(q, store.Durability{}), t, q}
}

func (w *world) set(name string, spec Spec) Record {
	w.t.Helper()
	if spec.Topic == "" {
		spec.Topic = "t"
	}
	r, _, err := w.Set(w.t.Context(), name, spec)
	require.NoError(w.t, err)
	return r
}

// kept is the record as Redis has it.
func (w *world) kept(name string) Kept {
	w.t.Helper()
	kept, _, err := w.read(w.t.Context(), name)
	require.NoError(w.t, err)
	require.NoError(w.t, kept.Err)
	return kept
}

// step makes one step from a record, and returns the record then.
func (w *world) step(kept Kept) (Kept, Tally) {
	w.t.Helper()
	tally, err := w.Step(w.t.Context(), kept)
	require.NoError(w.t, err)
	return w.kept(kept.Name), tally
}

// waiting are the messages that wait, by id, with the tokens under which they were scheduled.
func (w *world) waiting() map[string]inspect.ListItem {
	w.t.Helper()
	page, err := inspect.NewAdmin(w.q).List(w.t.Context(), inspect.ListRequest{Filter: inspect.Filter{State: inspect.StateScheduled}, Limit: inspect.MaxList})
	require.NoError(w.t, err)
	all := map[string]inspect.ListItem{}
	for _, m := range page.Messages {
		all[m.Found.ID] = m
	}
	return all
}

func (w *world) created() (n int64) {
	w.t.Helper()
	stats, err := inspect.NewAdmin(w.q).StatsOfAll(w.t.Context())
	require.NoError(w.t, err)
	return stats.Sum().Counters["scheduled"]
}

// TestFirings: what is scheduled, and how it looks.
func TestFirings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("daily", Spec{Cron: "0 20 * * *", Zone: "Europe/Berlin", Headers: map[string]string{"x": "y"}, Body: []byte("hi"), Key: "k"})
	kept, tally := w.step(w.kept("daily"))
	require.Equal(t, Tally{Scheduled: 1}, tally)
	require.Empty(t, kept.Pending)
	next := kept.Next(w.q.Now())
	require.Equal(t, kept.Planned, next)
	all := w.waiting()
	require.Len(t, all, 1)
	m := all["daily@"+next.Format(time.RFC3339)]
	require.Equal(t, next.UnixMilli(), m.Found.DueAt.UnixMilli())
	require.Equal(t, map[string]string{"x": "y", message.HeaderRecurring: "daily"}, m.Found.Headers)
	require.Equal(t, "k", m.Found.Key)
	_, tally = w.step(kept)
	require.Zero(t, tally, "until it has come")
}

// TestSetAgain: an equal one stays as it is, another one takes its place, also while it is paused.
func TestSetAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.set("n", Spec{Cron: "0 0 * * *", Key: "a"})
	require.Equal(t, first.Revision, w.set("n", Spec{Cron: "0 0 * * *", Key: "a"}).Revision)
	_, _ = w.step(w.kept("n"))
	before := w.waiting()
	second := w.set("n", Spec{Cron: "0 0 * * *", Key: "b"})
	require.NotEqual(t, first.Revision, second.Revision)
	require.Empty(t, w.waiting(), "it was cancelled before the call returned")
	_, _ = w.step(w.kept("n"))
	for id, m := range w.waiting() {
		require.Contains(t, before, id)
		require.Equal(t, "b", m.Found.Key)
	}
	_, err := w.Pause(t.Context(), "n", "ann")
	require.NoError(t, err)
	require.Empty(t, w.waiting())
	third := w.set("n", Spec{Cron: "0 0 * * *"})
	require.Equal(t, "ann", third.By)
	_, tally := w.step(w.kept("n"))
	require.Zero(t, tally)
	_, err = w.Resume(t.Context(), "n")
	require.NoError(t, err)
	_, _ = w.step(w.kept("n"))
	require.Len(t, w.waiting(), 1)
	_, err = w.Delete(t.Context(), "n")
	require.NoError(t, err)
	require.Empty(t, w.waiting())
	for _, call := range []func() error{
		func() error { _, err := w.Get(t.Context(), "n"); return err },
		func() error { _, err := w.Delete(t.Context(), "n"); return err },
		func() error { _, err := w.Resume(t.Context(), "n"); return err },
		func() error { _, err := w.Pause(t.Context(), "n", ""); return err },
	} {
		require.ErrorIs(t, call(), ErrNone)
	}
}

// TestResumeMakesUpForNothing: what would have come during a pause was not missed.
func TestResumeMakesUpForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("n", Spec{Cron: "0 * * * *", Missed: CatchUp, CatchUp: 3})
	_, err := w.Pause(t.Context(), "n", "ann")
	require.NoError(t, err)
	kept := w.kept("n")
	hoursAgo := kept.Record
	hoursAgo.Planned = hoursAgo.Planned.Add(-5 * time.Hour)
	_, err = w.put(t.Context(), kept, "", &hoursAgo, true, store.Durability{})
	require.NoError(t, err)
	require.Equal(t, hoursAgo.Planned, w.kept("n").Planned)
	_, err = w.Resume(t.Context(), "n")
	require.NoError(t, err)
	kept, tally := w.step(w.kept("n"))
	require.Equal(t, Tally{Scheduled: 1}, tally)
	require.Zero(t, kept.Skipped)
	require.Len(t, w.waiting(), 1)
}

// TestBrokenOff: a planner dies after each of its steps, and another goes on from there.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]func(w *world, kept Kept){
		"before the first": func(*world, Kept) {},
		"decided":          func(w *world, kept Kept) { _, _ = w.decide(w.t.Context(), kept) },
		"scheduled some": func(w *world, kept Kept) {
			kept, err := w.decide(w.t.Context(), kept)
			require.NoError(w.t, err)
			text := kept.text
			kept.text, kept.Pending = "not this one", kept.Pending[:1]
			_, err = w.schedule(w.t.Context(), kept)
			require.ErrorIs(w.t, err, errMeanwhile)
			require.Equal(w.t, text, w.kept("n").text)
		},
		"scheduled all": func(w *world, kept Kept) {
			kept, err := w.decide(w.t.Context(), kept)
			require.NoError(w.t, err)
			other := New(w.q, store.Durability{})
			text := kept.text
			kept.text = "not this one"
			_, err = other.schedule(w.t.Context(), kept)
			require.ErrorIs(w.t, err, errMeanwhile)
			require.Equal(w.t, text, w.kept("n").text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set("n", Spec{Cron: "@every 7s"})
			dies(w, w.kept("n"))
			kept, _ := w.step(w.kept("n"))
			require.Empty(t, kept.Pending)
			require.Len(t, w.waiting(), 4)
			require.Equal(t, int64(4), w.created(), "each once")
		})
	}
}

// TestTwoPlanners: two that start from the same record make each firing once.
func TestTwoPlanners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("n", Spec{Cron: "@every 1s"})
	for range 20 {
		kept := w.kept("n")
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { _, _ = w.Step(t.Context(), kept) })
		}
		both.Wait()
	}
	kept, _ := w.step(w.kept("n"))
	require.Empty(t, kept.Pending)
	require.Equal(t, kept.Scheduled, w.created())
	require.Equal(t, kept.Planned.Unix()-kept.SetAt.Unix(), w.created())
}

// TestLatePlanner: what a planner has read before a schedule was replaced, paused or deleted has no effect after it, wherever
// in its step it was, and whoever has finished the change.
func TestLatePlanner(t *testing.T) {
	t.Parallel()
	ends := map[string]func(w *world) error{
		"replaced": func(w *world) error {
			_, _, err := w.Set(w.t.Context(), "n", Spec{Cron: "0 0 1 1 *", Topic: "other"})
			return err
		},
		"paused":  func(w *world) error { _, err := w.Pause(w.t.Context(), "n", "ann"); return err },
		"deleted": func(w *world) error { _, err := w.Delete(w.t.Context(), "n"); return err },
		"deleted and set again": func(w *world) error {
			_, err := w.Delete(w.t.Context(), "n")
			require.NoError(w.t, err)
			_, _, err = w.Set(w.t.Context(), "n", Spec{Cron: "0 0 1 1 *", Topic: "other"})
			return err
		},
		"left by who has begun it": func(w *world) error {
			kept := w.kept("n")
			next := kept.Record
			require.NoError(w.t, next.end(w.q.Now()))
			next.Paused = w.q.Now()
			kept, err := w.put(w.t.Context(), kept, "", &next, false, store.Durability{})
			require.NoError(w.t, err)
			_, _ = w.step(kept)
			return nil
		},
	}
	for name, ended := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set("n", Spec{Cron: "@every 10s"})
			read := w.kept("n")
			decided, err := w.decide(t.Context(), read)
			require.NoError(t, err)
			require.Len(t, decided.Pending, 3)
			require.NoError(t, ended(w))
			for _, late := range []Kept{read, decided} {
				done, err := w.Step(t.Context(), late)
				require.NoError(t, err)
				require.Zero(t, done)
			}
			for id, m := range w.waiting() {
				require.Equal(t, "other", m.Found.Topic, id)
			}
			if kept := w.kept("n"); kept.text != "" {
				_, _ = w.step(kept)
			}
			for id, m := range w.waiting() {
				require.Equal(t, "other", m.Found.Topic, id)
			}
		})
	}
}

// TestLateEnd: what ends a revision late does nothing to the firings of the next one, which have the same ids.
func TestLateEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("n", Spec{Cron: "0 0 1 1 *", Body: []byte("old")})
	kept, _ := w.step(w.kept("n"))
	stale := &Stale{kept.Revision, "", []int64{kept.Planned.Unix()}}
	w.set("n", Spec{Cron: "0 0 1 1 *", Body: []byte("new")})
	_, _ = w.step(w.kept("n"))
	require.Len(t, w.waiting(), 1)
	spent, err := w.endFirings(t.Context(), "n", stale)
	require.NoError(t, err)
	require.Empty(t, spent)
	require.Len(t, w.waiting(), 1)
}

// TestLostBetweenEnds: two end a revision, and a shard is lost between their calls. The late one leaves no message, and the call that
// schedules the firing still has no effect.
func TestLostBetweenEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("n", Spec{Cron: "@daily"})
	kept, _ := w.step(w.kept("n"))
	stale := &Stale{kept.Revision, "", []int64{kept.Planned.Unix()}}
	id := FiringID("n", kept.Planned.Unix())
	ends := func() {
		spent, err := w.endFirings(t.Context(), "n", stale)
		require.NoError(t, err)
		require.Empty(t, spent)
	}
	ends()
	layout, err := w.q.LoadLayout(t.Context())
	require.NoError(t, err)
	keys := layout.Keys()[layout.AppendHomes(nil, id, "")[0]]
	require.EqualValues(t, 2, w.q.Redis(t.Context()).HLen(t.Context(), keys.Gone).Val(), "the traces of the calls that schedule it and cancel it")
	require.NoError(t, w.q.Redis(t.Context()).Del(t.Context(), keys.Gone, keys.GoneTTL).Err())
	ends()
	require.Empty(t, w.waiting())
	late := kept
	late.Pending = stale.Firings
	_, err = w.schedule(t.Context(), late)
	require.NoError(t, err)
	require.Empty(t, w.waiting())
}

// TestConfirmed: a change is as durable as asked, also one that finds what it asks for, or that must end what another has begun.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	options, err := redis.ParseURL(primary.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	q := storetest.New(t, rdb, 3)
	asked := store.Durability{Replicas: 1, Timeout: 20 * time.Millisecond}
	w := &world{New(q, asked), t, q}
	spec := Spec{Cron: "@daily", Topic: "t"}
	changes := map[string]func() error{
		"set":   func() error { _, _, err := w.Set(t.Context(), "n", spec); return err },
		"equal": func() error { _, _, err := w.Set(t.Context(), "n", spec); return err },
		"pause": func() error { _, err := w.Pause(t.Context(), "n", ""); return err },
		"ends what another has begun": func() error {
			kept := w.kept("n")
			next := kept.Record
			require.NoError(t, next.end(q.Now()))
			_, err := w.put(t.Context(), kept, "", &next, false, store.Durability{})
			require.NoError(t, err)
			_, err = w.Resume(t.Context(), "n")
			return err
		},
		"delete": func() error { _, err := w.Delete(t.Context(), "n"); return err },
	}
	all := func(check func(what string, err error)) {
		for _, what := range []string{"set", "equal", "pause", "ends what another has begun", "delete"} {
			check(what, changes[what]())
			if what == "equal" { // A firing waits, which the next one ends.
				_, err := New(q, store.Durability{}).Step(t.Context(), w.kept("n"))
				require.NoError(t, err)
				require.Len(t, w.waiting(), 1)
			}
		}
		require.Empty(t, w.waiting())
		_, err := w.Get(t.Context(), "n")
		require.ErrorIs(t, err, ErrNone)
	}
	all(func(what string, err error) { require.ErrorIs(t, err, store.ErrNotDurable, what) })
	_, err = w.endFirings(t.Context(), "n", &Stale{Revision: "r", Firings: []int64{1}})
	require.ErrorIs(t, err, store.ErrNotDurable)

	host, port, err := net.SplitHostPort(options.Addr)
	require.NoError(t, err)
	replica := testenv.StartRedis(t, "--replicaof", host+" "+port)
	require.Eventually(t, func() bool { return rdb.Wait(t.Context(), 1, time.Second).Val() == 1 }, time.Minute, time.Millisecond)
	w.durable.Timeout = 10 * time.Second
	all(func(what string, err error) { require.NoError(t, err, what) })
	w.durable.Timeout = 20 * time.Millisecond
	replica.Pause()
	all(func(what string, err error) { require.ErrorIs(t, err, store.ErrNotDurable, what) })
	replica.Resume()
	w.durable.Timeout = 10 * time.Second
	require.Eventually(t, func() bool { return changes["set"]() == nil }, time.Minute, time.Millisecond)
	primary.Kill()
	options, err = redis.ParseURL(replica.URL())
	require.NoError(t, err)
	onReplica := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, onReplica.Close()) })
	require.Contains(t, onReplica.HGet(t.Context(), q.Keys().Recurring(), "n").Val(), `"@daily"`)
}

// TestLateChange: a run of the script that comes late creates no schedule that was deleted meanwhile.
func TestLateChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, mark, err := w.read(t.Context(), "n")
	require.NoError(t, err)
	late := &Record{Name: "n", Revision: "late"}
	w.set("n", Spec{Cron: "@daily"})
	_, err = w.Delete(t.Context(), "n")
	require.NoError(t, err)
	_, err = w.put(t.Context(), Kept{}, mark, late, true, store.Durability{})
	require.ErrorIs(t, err, errMeanwhile)
	_, err = w.Get(t.Context(), "n")
	require.ErrorIs(t, err, ErrNone)
}

// TestLateChangeAfterNone: a run that comes late changes nothing either once another call was answered that has left all as it was.
func TestLateChangeAfterNone(t *testing.T) {
	t.Parallel()
	daily := Spec{Cron: "@daily", Missed: Skip, Topic: "t"}
	type situation struct {
		paused bool // else it is in force, or, without a schedule, not there
		none   bool
		call   func(w *world) error
		says   error
	}
	for name, s := range map[string]situation{
		"set again":        {call: func(w *world) error { _, _, err := w.Set(w.t.Context(), "n", daily); return err }},
		"paused again":     {call: func(w *world) error { _, err := w.Pause(w.t.Context(), "n", "bob"); return err }, paused: true},
		"resumed again":    {call: func(w *world) error { _, err := w.Resume(w.t.Context(), "n"); return err }},
		"deleted, none":    {call: func(w *world) error { _, err := w.Delete(w.t.Context(), "n"); return err }, none: true, says: ErrNone},
		"paused, none":     {call: func(w *world) error { _, err := w.Pause(w.t.Context(), "n", ""); return err }, none: true, says: ErrNone},
		"none, among many": {call: func(w *world) error { _, err := w.Resume(w.t.Context(), "n"); return err }, none: true, says: ErrNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if !s.none {
				w.set("n", daily)
			}
			if s.paused {
				_, err := w.Pause(t.Context(), "n", "ann")
				require.NoError(t, err)
			}
			for i := 0; name == "none, among many" && i < Most; i++ {
				w.set(fmt.Sprint("other", i), daily)
			}
			kept, mark, err := w.read(t.Context(), "n")
			require.NoError(t, err)
			late := kept.Record
			late.Name, late.Spec, late.Paused, late.Revision, late.Call = "n", Spec{Cron: "@hourly", Topic: "t"}, time.Time{}, "late", "late"
			require.ErrorIs(t, s.call(w), s.says)
			_, err = w.put(t.Context(), kept, mark, &late, true, store.Durability{})
			require.ErrorIs(t, err, errMeanwhile)
			is, _, err := w.read(t.Context(), "n")
			require.NoError(t, err)
			require.Equal(t, kept.Revision, is.Revision)
			require.Equal(t, kept.By, is.By)
		})
	}
}

// lastRun keeps the last run of the script for recurring schedules that a client has sent.
type lastRun struct{ args []any }

func (r *lastRun) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *lastRun) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && strings.HasSuffix(fmt.Sprint(args[3]), ":recurring") {
			r.args = args
		}
		return next(ctx, cmd)
	}
}

func (r *lastRun) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLateChangeAfterAWipe: the very first schedule of a queue does not come back after Redis was emptied, when the network
// delivers a run of its call once more.
func TestLateChangeAfterAWipe(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb, sent := redis.NewClient(options), &lastRun{}
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	rdb.AddHook(sent)
	q := storetest.New(t, struct{ redis.UniversalClient }{rdb}, 1) // Its calls go through the hook.
	w := &world{New(q, store.Durability{}), t, q}
	w.set("n", Spec{Cron: "@daily"})
	require.Equal(t, "n", sent.args[4])
	require.NoError(t, rdb.Del(t.Context(), q.Keys().Recurring()).Err())
	require.NoError(t, rdb.Do(t.Context(), sent.args...).Err())
	_, err = w.Get(t.Context(), "n")
	require.ErrorIs(t, err, ErrNone)
}

// A firing that an operator has moved is ended all the same, as long as its nominal time has not come.
func TestEndOfAMovedFiring(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world) error{
		"set":    func(w *world) error { w.set("n", Spec{Cron: "0 0 1 1 *", Body: []byte("2")}); return nil },
		"pause":  func(w *world) error { _, err := w.Pause(t.Context(), "n", ""); return err },
		"delete": func(w *world) error { _, err := w.Delete(t.Context(), "n"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set("n", Spec{Cron: "@every 1h", Body: []byte("1")})
			w.step(w.kept("n"))
			require.Len(t, w.waiting(), 1)
			for id := range w.waiting() {
				for range 2 {
					require.Equal(t, store.Done, w.q.Producer().Reschedule(t.Context(), id, "", store.When{Relative: true, Ms: 9e6}, store.Durability{}).Code)
				}
			}
			require.NoError(t, end(w))
			require.Empty(t, w.waiting())
		})
	}
}

// A firing that came while its revision was being ended does not come of the next one, too, whoever ends it; one that did not come does.
func TestEndAtTheInstantOfAFiring(t *testing.T) {
	t.Parallel()
	cancel := func(w *world, id string) {
		require.Equal(w.t, store.Done, w.q.Producer().Cancel(w.t.Context(), id, "", store.Durability{}).Code)
	}
	// An operator moves it, and so it comes while its nominal time is still to be.
	claim := func(w *world, id string) (*store.Shard, message.Claim) {
		require.Equal(w.t, store.Done, w.q.Producer().Reschedule(w.t.Context(), id, "", store.When{Ms: 1}, store.Durability{}).Code)
		for number := range 3 {
			shard := w.q.Shard(number)
			claim, err := shard.Claim(w.t.Context(), message.ClaimRequest{Token: message.ClaimToken{Instance: "b/boot", Number: 1}, Max: 10, Timeout: time.Minute, Lease: time.Minute})
			require.NoError(w.t, err)
			if len(claim.Messages) > 0 {
				return shard, claim
			}
		}
		require.Fail(w.t, "nothing is due")
		return nil, message.Claim{}
	}
	publish := func(w *world, id string) {
		shard, claim := claim(w, id)
		_, err := shard.Settle(w.t.Context(), message.Settlement{Claim: claim, Verdicts: []message.Verdict{{Verb: message.VerbAck}}})
		require.NoError(w.t, err)
	}
	for name, c := range map[string]struct {
		before func(w *world, id string)
		comes  bool
	}{
		"waits":         {func(*world, string) {}, true},
		"is in flight":  {func(w *world, id string) { _, _ = claim(w, id) }, false},
		"was published": {publish, false},
		"was cancelled": {cancel, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set("n", Spec{Cron: "0 0 1 1 *", Body: []byte("old")})
			kept, _ := w.step(w.kept("n"))
			stale, id := &Stale{kept.Revision, "", []int64{kept.Planned.Unix()}}, FiringID("n", kept.Planned.Unix())
			c.before(w, id)
			spent, err := w.endFirings(t.Context(), "n", stale) // Somebody else has begun, too.
			require.NoError(t, err)
			require.Equal(t, c.comes, len(spent) == 0)
			for _, body := range []string{"new", "newer"} {
				w.set("n", Spec{Cron: "0 0 1 1 *", Body: []byte(body)})
				kept, _ = w.step(w.kept("n"))
				require.Equal(t, id, FiringID("n", kept.Planned.Unix()))
				require.Equal(t, c.comes, kept.Scheduled == 1, body)
			}
		})
	}
}

// TestSkipped: a firing that somebody has cancelled stays cancelled.
func TestSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("n", Spec{Cron: "@every 60s"})
	kept, _ := w.step(w.kept("n"))
	storetest.Answered(t, store.Done, w.q.Producer().Cancel(t.Context(), FiringID("n", kept.Planned.Unix()), "", store.Durability{}))
	_, _ = w.step(w.kept("n"))
	require.Empty(t, w.waiting())
}

// TestMost: one more than the limit is refused, and a name that is there is not one more.
func TestMost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range Most {
		w.set(fmt.Sprint("n", i), Spec{Cron: "@daily"})
	}
	_, _, err := w.Set(t.Context(), "more", Spec{Cron: "@daily", Topic: "t"})
	require.ErrorIs(t, err, ErrMany)
	w.set("n1", Spec{Cron: "@hourly"})
	all, mark, err := w.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, Most)
	require.NotEmpty(t, mark)
}

// TestUnreadable: a record of which this version makes nothing is not touched.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.q.Redis(t.Context()).HSet(t.Context(), w.q.Keys().Recurring(), "n", "{").Err())
	_, err := w.Get(t.Context(), "n")
	require.ErrorIs(t, err, ErrUnreadable)
	_, _, err = w.Set(t.Context(), "n", Spec{Cron: "@daily", Topic: "t"})
	require.ErrorIs(t, err, ErrUnreadable)
	all, _, err := w.List(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, all[0].Err, ErrUnreadable)
}

// TestReshard: a firing that was scheduled by an old layout is ended under the new one, and is not made again.
func TestReshard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 8 {
		w.set(fmt.Sprint("n", i), Spec{Cron: "0 0 1 1 *"})
	}
	read, _, err := w.List(t.Context())
	require.NoError(t, err)
	for _, kept := range read {
		_, _ = w.step(kept)
	}
	_, err = w.q.Layouts().SetShards(t.Context(), 5)
	require.NoError(t, err)
	for i, kept := range read {
		_, err = w.Step(t.Context(), kept)
		require.NoError(t, err)
		if i%2 == 0 {
			_, err = w.Delete(t.Context(), kept.Name)
			require.NoError(t, err)
		}
	}
	require.Equal(t, int64(8), w.created())
	require.Len(t, w.waiting(), 4)
	for id := range w.waiting() {
		require.True(t, strings.HasPrefix(id, "n1@") || strings.HasPrefix(id, "n3@") || strings.HasPrefix(id, "n5@") || strings.HasPrefix(id, "n7@"), id)
	}
}

// TestDeadline: a call ends with its context.
func TestDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := w.Set(ctx, "n", Spec{Cron: "@daily", Topic: "t"})
	require.ErrorIs(t, err, store.ErrUnavailable)
}

// TestCluster: the records of a queue are on one node, its shards on others, and the hint is heard there.
func TestCluster(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testenv.StartCluster(t).Addrs()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	q := storetest.New(t, rdb, 4)
	w := &world{New(q, store.Durability{}), t, q}
	hints := rdb.SSubscribe(t.Context(), q.Keys().Instances())
	t.Cleanup(func() { require.NoError(t, hints.Close()) })
	_, err := hints.Receive(t.Context())
	require.NoError(t, err)
	w.set("n", Spec{Cron: "@every 5s"})
	heard, err := hints.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Equal(t, "recurring", heard.Payload)
	_, tally := w.step(w.kept("n"))
	require.Positive(t, tally.Scheduled)
	_, err = w.Delete(t.Context(), "n")
	require.NoError(t, err)
	require.Empty(t, w.waiting())
}
