package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// storyRow is a row of a lane's story. It can be stored from an instant on; until then it waits, or
// another message of its id is in its way.
type storyRow struct {
	queue                         string
	number, dueMs                 int64
	operation                     bool
	inserted, commits, good, done time.Time
	blocked                       bool
}

func (r *storyRow) cursor() table.Cursor {
	if r.operation {
		return table.Cursor{Number: r.number}
	}
	return table.Cursor{Ms: r.dueMs, Number: r.number}
}

// storyLane is a lane with its clock, and what it has done.
type storyLane struct {
	*lane
	at        time.Time
	asleep    bool
	slowEnd   time.Time // of its last slow look, zero: it has failed since
	slowTook  time.Duration
	calls     int // since all was quiet
	failure   error
	isUnsure  bool // since a failure it has not looked
	hasLooked bool // and nothing has begun since
}

// story is a database and a Redis, and the lanes that work on them.
type story struct {
	t                *rapid.T
	rows             []*storyRow
	lanes            []*storyLane
	blocked          *blockedRows
	random           *rand.Rand
	start            time.Time
	heals, slow, end time.Time // faults until then; looks at everything are slow from then on
	slowLook         time.Duration
}

const storyHorizon = time.Hour

// TestLane plays stories of two lanes, alone, through a database whose looks become slow and
// calls that fail: whatever comes, however late it is committed, and whatever waits before it, is
// taken in time, new rows do not wait for slow looks, and lanes rest where nothing is to be had.
func TestLane(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &story{t: t, blocked: newBlocked(slog.New(slog.DiscardHandler)), start: time.UnixMilli(1_700_000_000_000)}
		after := func(label string, most int) time.Time {
			return s.start.Add(time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond)
		}
		s.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "faults"), 0))
		s.heals, s.slow = after("heals", 30_000), after("slow", 60_000)
		s.slowLook = time.Duration(rapid.SampledFrom([]int{1, 100, 1000, 15_000}).Draw(t, "look")) * time.Millisecond
		lanes := rapid.IntRange(1, 2).Draw(t, "lanes")
		shared := &lookout{}
		for i := range lanes {
			l := newLane(&Config{Lanes: lanes, Poll: defaultPoll, cheapLook: defaultCheapLook}, []string{"a", "b"}, i, shared)
			l.pause.Random = s.random.Float64
			for _, kinds := range l.courses {
				for _, courses := range kinds {
					for i := range courses {
						courses[i].pause.Random = s.random.Float64
					}
				}
			}
			s.lanes = append(s.lanes, &storyLane{lane: l, at: s.start})
		}
		waits := rapid.SampledFrom([][]int{{0}, {0, 0, 0, 7}, {0, 3600}}).Draw(t, "waits")
		bursts := []time.Time{after("burst", 30_000), after("burst", 120_000), after("burst", 120_000)}
		for range rapid.IntRange(0, 30).Draw(t, "rows") {
			at := rapid.SampledFrom(bursts).Draw(t, "inserted").Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "inserted")) * time.Millisecond)
			r := &storyRow{inserted: at, queue: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), operation: rapid.Bool().Draw(t, "operation")}
			r.commits = at.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 10}).Draw(t, "commits")) * time.Second)
			r.dueMs = at.Add(time.Duration(rapid.SampledFrom([]int{-60, 0, 60, 3590, 3660}).Draw(t, "due")) * time.Second).UnixMilli()
			r.good, r.blocked = r.commits.Add(time.Duration(rapid.SampledFrom(waits).Draw(t, "good"))*time.Second), rapid.Bool().Draw(t, "blocked")
			s.rows = append(s.rows, r)
		}
		slices.SortStableFunc(s.rows, func(a, b *storyRow) int { return a.inserted.Compare(b.inserted) })
		for i, r := range s.rows {
			r.number = int64(i + 1)
		}
		s.end = s.start.Add(10 * time.Minute)
		s.play()
	})
}

// quiet is when nothing changes any more.
func (s *story) quiet() time.Time { return s.start.Add(6 * time.Minute) }

func (s *story) play() {
	for {
		l := slices.MinFunc(s.lanes, func(a, b *storyLane) int { return a.at.Compare(b.at) })
		if l.at.After(s.end) {
			break
		}
		l.asleep = false
		if l.at.After(s.quiet()) {
			l.calls++
		}
		s.step(l)
	}
	for _, r := range s.rows {
		s.requireStored(r)
	}
	for _, l := range s.lanes {
		require.Less(s.t, l.calls, 4*60*50, "it turns where nothing is to be had")
	}
}

// requireStored requires that a row was stored in time.
func (s *story) requireStored(r *storyRow) {
	can := slices.MaxFunc([]time.Time{r.commits, r.good, s.heals, time.UnixMilli(r.dueMs).Add(-storyHorizon)}, time.Time.Compare)
	within := 2 * time.Minute // A slow look twice, and the longest rest between two of them.
	isPrompt := len(s.lanes) > 1 && r.good.Equal(r.commits) && time.UnixMilli(r.dueMs).Before(r.commits.Add(storyHorizon))
	isPrompt = isPrompt && r.commits.Sub(r.inserted) < lateAfter
	for _, other := range s.rows { // None has its queue rest.
		isPrompt = isPrompt && (other.queue != r.queue || other.blocked || other.good.Equal(other.commits))
	}
	if isPrompt && can.Equal(r.commits) && r.commits.After(s.heals.Add(time.Minute)) && r.commits.After(s.slow.Add(time.Minute)) {
		within = 2 * time.Second
	}
	if can.Add(within).Before(s.end) {
		require.False(s.t, r.done.IsZero(), "%+v is not stored", r)
		require.WithinDuration(s.t, can, r.done, within, "%+v", r)
	}
}

// fault is what fails, if anything does.
func (s *story) fault(now time.Time) error {
	if now.After(s.heals) || s.random.IntN(3) > 0 {
		return nil
	}
	return []error{errors.New("away"), context.DeadlineExceeded}[s.random.IntN(2)]
}

// step does what a lane says.
func (s *story) step(l *storyLane) {
	now := l.at
	a := l.next(now)
	took := time.Duration(1+s.random.IntN(20)) * time.Millisecond
	require.True(s.t, l.failure == nil || a.failed && a.pause > 0, "it does not rest after a failure")
	l.failure = nil
	err := s.fault(now)
	switch {
	case a.step != nil:
		require.True(s.t, now.Sub(a.outlook.read) <= readWithin || l.hasLooked, "it begins on an old clock")
		l.hasLooked = false
		if now.Before(s.heals) {
			took *= time.Duration(1 + s.random.IntN(200))
		}
		l.at = now.Add(took)
		if err == nil {
			l.took(l.at, a.step, s.take(now, a.step))
		}
	case a.view != nil:
		require.True(s.t, a.view.whole || !l.isUnsure, "nobody knows what is left")
		l.isUnsure, l.hasLooked = false, true
		err = s.look(l, a.view, took, err)
	case a.more:
		for _, other := range s.lanes {
			if other.asleep {
				other.at, other.asleep = now, false
			}
		}
	default:
		l.at, l.asleep = now.Add(max(a.pause, time.Microsecond)), true
		return
	}
	if l.failure = err; err != nil {
		l.failed(a.step, err)
		l.slowEnd, l.isUnsure = time.Time{}, !errors.Is(err, context.DeadlineExceeded)
	}
}

func (s *story) newest(now time.Time) (number int64) {
	for _, r := range s.rows {
		if !r.commits.After(now) {
			number = max(number, r.number)
		}
	}
	return number
}

func (s *story) look(l *storyLane, v *view, took time.Duration, err error) error {
	clock := outlook{now: l.at, read: l.at, horizon: storyHorizon}
	if l.at.Before(s.heals) {
		l.at = l.at.Add(time.Duration(s.random.IntN(4000)) * time.Millisecond) // Redis' clock was read slowly.
	}
	now := l.at
	isSlow := v.whole && now.After(s.slow) && s.slowLook > defaultCheapLook
	if took = min(took, 5*time.Millisecond); isSlow {
		took = s.slowLook
		if !l.slowEnd.IsZero() {
			if !slices.ContainsFunc(s.rows, func(r *storyRow) bool { return r.good.After(r.commits) }) && l.slowEnd.After(s.heals.Add(10*time.Second)) {
				require.GreaterOrEqual(s.t, now.Sub(l.slowEnd), min(20*l.slowTook, longestRest), "slow looks take much of the time")
			}
			require.False(s.t, l.first && len(s.lanes) > 1, "new rows wait for a slow look")
		}
	}
	there := table.Floor{Number: max(s.newest(now), v.floor.Number), UntilMs: clock.untilMs()}
	if isTimeOut := isSlow && took > v.within; isTimeOut {
		l.at, l.slowEnd, l.slowTook = now.Add(v.within), now.Add(v.within), v.within
		l.timedOut(l.at, v.within, there)
		return nil
	}
	l.at = now.Add(took)
	if err != nil {
		return err
	}
	if isSlow {
		l.slowEnd, l.slowTook = l.at, took
	}
	found, untilMs := map[string]table.PendingWork{}, clock.untilMs()
	for _, r := range slices.SortedFunc(slices.Values(s.rows), byCursor) {
		if !r.done.IsZero() || r.commits.After(now) {
			continue
		}
		w, known := found[r.queue]
		isNew := r.number > v.floor.Number
		switch {
		case v.whole:
			if !known {
				w.First = table.Cursor{Ms: r.cursor().Ms}
				w.Heads = w.First.Ms <= untilMs
			}
			w.Operations = w.Operations || r.operation
		case r.operation && isNew:
			w.NewOperations = append(w.NewOperations, r.number)
		case !r.operation && r.dueMs <= untilMs && (isNew || r.dueMs > v.floor.UntilMs):
			w.NewHeads = append(w.NewHeads, r.number)
		}
		slices.Sort(w.NewHeads)
		slices.Sort(w.NewOperations)
		found[r.queue] = w
	}
	if isSlow {
		clock.now, clock.read = l.at, l.at
	}
	l.looked(l.at, took, found, there, clock)
	return nil
}

func byCursor(a, b *storyRow) int {
	return cmp.Or(cmp.Compare(a.cursor().Ms, b.cursor().Ms), cmp.Compare(a.number, b.number))
}

// take is a batch of three rows.
func (s *story) take(now time.Time, st *step) (o outcome) {
	work, resting := st.work, s.blocked.list(now, st.work.Queue)
	var rows []*storyRow
	for _, r := range s.rows {
		c := r.cursor()
		isBehind := c.Ms > work.After.Ms || c.Ms == work.After.Ms && c.Number > work.After.Number
		switch {
		case r.queue != work.Queue, r.operation != st.operations, !r.done.IsZero(), r.commits.After(now), slices.Contains(resting, r.number):
		case work.Numbers != nil && slices.Contains(work.Numbers, r.number):
			rows = append(rows, r)
		case work.Numbers == nil && (r.operation || r.dueMs <= work.UntilMs) && isBehind:
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byCursor)
	if work.Numbers != nil {
		slices.SortFunc(rows, func(a, b *storyRow) int { return cmp.Compare(a.number, b.number) })
	}
	if o.full = len(rows) >= 3; o.full {
		rows = rows[:3]
	}
	var blocked []blockedRow
	for _, r := range rows {
		o.last = r.cursor()
		switch {
		case !now.Before(r.good):
			r.done, o.settled = now, o.settled+1
		case r.blocked:
			blocked = append(blocked, blockedRow{table.Identity{Queue: r.queue}, r.number, "another"})
		default:
			o.waiting++
		}
	}
	o.blocked, o.crowded = len(blocked), s.blocked.add(context.Background(), now, st.work.Queue, blocked)
	return o
}
