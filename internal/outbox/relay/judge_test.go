package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

var moveTo = table.Move{Token: "~new", DueMs: 7, Revision: 9}

// updateText shows an update in a word: "-" is none.
func updateText(u table.Update) string {
	var words []string
	if u.State != table.StatePending {
		words = append(words, u.State.String())
	}
	if u.Lives {
		words = append(words, "lives")
	}
	if u.Move != nil {
		words = append(words, "moved")
		if u.Move.Maybe {
			words = append(words, "maybe")
		}
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, "+")
}

func (v verdict) text() string {
	text := updateText(v.op) + " " + updateText(v.head)
	if v.stop {
		text += " stop"
	}
	return text
}

var codeNames = map[store.Code]string{
	store.Done: "done", store.DoneMaybePublished: "maybe", store.InFlight: "in flight", store.NotFound: "not found",
	store.EndedPublished: "was published", store.EndedCancelled: "was cancelled", store.EndedMaybe: "was cancelled, maybe", store.NoBody: "no body",
	store.EndedMoved: "moved", store.Unknown: "unknown", store.Created: "created", store.Mine: "mine", store.Dead: "dead",
	store.Waiting: "waiting", store.Replaced: "replaced", store.NotLooked: "not looked",
}

// judged is the verdict on an operation, and on its message's row. All other
// answers are none.
var judged = map[string]map[string]string{
	"cancel": {
		"done": "cancelled cancelled", "maybe": "unknown cancelled", "in flight": "too_late -", "not found": "cancelled cancelled",
		"was published": "too_late published", "was cancelled": "cancelled cancelled", "was cancelled, maybe": "unknown cancelled", "no body": "refused -",
		"moved": "superseded -",
	},
	"reschedule": {
		"done": "stored stored+moved", "maybe": "unknown stored+moved+maybe", "in flight": "too_late -", "not found": "stored moved",
		"was published": "too_late published", "was cancelled": "too_late cancelled", "was cancelled, maybe": "too_late cancelled", "no body": "refused -",
		"moved": "superseded -",
	},
	"replace": {
		"done": "lives cancelled", "maybe": "lives cancelled", "in flight": "- - stop", "not found": "lives cancelled",
		"was published": "lives published", "was cancelled": "lives cancelled", "was cancelled, maybe": "lives cancelled", "no body": "refused -",
		"moved": "superseded -",
	},
}

// maybeJudged are the verdicts that differ where a copy may be out of which neither
// Redis nor the row knows.
var maybeJudged = map[string]string{
	"cancel not found": "unknown cancelled", "reschedule not found": "unknown moved+maybe",
}

// TestJudge goes through every verb and answer.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, v := range []table.Verb{table.VerbCancel, table.VerbReschedule, table.VerbReplace} {
		for code, codeName := range codeNames {
			for _, maybe := range []bool{false, true} {
				want, ok := judged[v.String()][codeName]
				if !ok {
					want = "- - stop"
				}
				if w := maybeJudged[v.String()+" "+codeName]; maybe && w != "" {
					want = w
				}
				got := judge(situation{verb: v, maybe: maybe, op: moveTo}, store.Answer{Code: code})
				require.Equal(t, want, got.text(), "%s: %s, maybe %v", v, codeName, maybe)
				requireMoved(t, got)
			}
		}
	}
}

func requireMoved(t *testing.T, v verdict) {
	t.Helper()
	require.Nil(t, v.op.Move)
	if v.head.Move != nil {
		to := *v.head.Move
		to.Maybe = false
		require.Equal(t, moveTo, to)
	}
	if v.op.State == table.StateUnknown || v.op.State == table.StateRefused {
		require.NotEmpty(t, v.op.Reason, "says why")
	}
	// I11: what says done has no doubt; what is in doubt does not say done.
	if v.op.State == table.StateCancelled && v.head.State != table.StatePending {
		require.Equal(t, table.StateCancelled, v.head.State)
		require.Empty(t, v.head.Reason)
	}
}

func failures() map[string]error {
	return map[string]error{
		"later":   fmt.Errorf("x: %w", store.ErrUnavailable),
		"full":    fmt.Errorf("x: %w", store.ErrFull),
		"layout":  store.ErrNoLayout,
		"unsure":  fmt.Errorf("x: %w", store.ErrUnknown),
		"other":   errors.New("script is broken"),
		"invalid": fmt.Errorf("x: %w", &message.InvalidError{Field: "topic"}),
	}
}

func TestJudgeErrors(t *testing.T) {
	t.Parallel()
	for name, err := range failures() {
		want := "- - stop"
		if name == "invalid" {
			want = "refused -"
		}
		for _, v := range []table.Verb{table.VerbCancel, table.VerbReschedule, table.VerbReplace} {
			got := judge(situation{verb: v, op: moveTo}, store.Answer{Code: store.Done, Err: err})
			require.Equal(t, want, got.text(), "%s %s", v, name)
		}
	}
}

func TestPutVerdicts(t *testing.T) {
	t.Parallel()
	want := map[string]string{"created": "stored", "mine": "stored", "was published": "published", "was cancelled": "cancelled", "was cancelled, maybe": "cancelled"}
	inTheWayOf := map[string]bool{"waiting": true, "in flight": true, "dead": true}
	for code, name := range codeNames {
		expect, ok := want[name]
		if !ok {
			expect = "-"
		}
		answer := store.Answer{Code: code, Reason: "why"}
		require.Equal(t, expect, updateText(judgePut(answer)), name)
		require.Equal(t, inTheWayOf[name], inTheWay(answer) != "", name)
	}
	for name, err := range failures() {
		expect := "-"
		if name == "invalid" {
			expect = "refused"
		}
		require.Equal(t, expect, updateText(judgePut(store.Answer{Code: store.Created, Err: err})), name)
		require.Empty(t, inTheWay(store.Answer{Code: store.Waiting, Err: err}), name)
	}
	require.Equal(t, "-", updateText(judgePut(store.Answer{Err: store.ErrNotDurable})), "asked again until it is confirmed")
}

func TestEnded(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"cancel published": "too_late", "cancel cancelled": "cancelled", "cancel refused": "cancelled",
		"reschedule published": "too_late", "reschedule cancelled": "too_late", "reschedule refused": "too_late",
	}
	for s := table.StatePending; s <= table.StateSuperseded; s++ {
		for _, v := range []table.Verb{table.VerbCancel, table.VerbReschedule} {
			expect, ok := want[v.String()+" "+s.String()]
			if !ok {
				expect = "unknown"
			}
			require.Equal(t, expect+" -", ended(v, s).text(), "%s %s", v, s)
		}
	}
	require.Equal(t, "superseded -", late().text())
}

// TestJudgeByTable goes through where operation, head and what has finished stand
// to each other.
func TestJudgeByTable(t *testing.T) {
	t.Parallel()
	head := func(number int64, s table.State) *table.Row { return &table.Row{Number: number, State: s, Revision: 3} }
	for name, c := range map[string]struct {
		g      table.Group
		target int64
		want   string // empty: Redis is asked
	}{
		"nothing known":              {want: "unknown -"},
		"the last was published":     {g: table.Group{Last: table.StatePublished}, want: "too_late -"},
		"the last was cancelled":     {g: table.Group{Last: table.StateCancelled}, want: "cancelled -"},
		"target deleted":             {target: 5, want: "unknown -"},
		"target published":           {target: 5, g: table.Group{Ended: map[int64]table.State{5: table.StatePublished}}, want: "too_late -"},
		"another target published":   {target: 5, g: table.Group{Ended: map[int64]table.State{6: table.StatePublished}}, want: "unknown -"},
		"head pending":               {target: 5, g: table.Group{Head: head(5, table.StatePending)}},
		"head stored":                {target: 5, g: table.Group{Head: head(5, table.StateStored)}},
		"head pending, came unseen":  {g: table.Group{Head: head(5, table.StatePending)}},
		"head is another":            {target: 4, g: table.Group{Head: head(5, table.StatePending)}, want: "superseded -"},
		"head is later, pending":     {g: table.Group{Head: head(15, table.StatePending)}, want: "unknown -"},
		"head is later, stored":      {g: table.Group{Head: head(15, table.StateStored)}, want: "unknown -"},
		"head is later, target gone": {target: 5, g: table.Group{Head: head(15, table.StatePending)}, want: "unknown -"},
		"head is later, target published": {
			target: 5, g: table.Group{Head: head(15, table.StateStored), Ended: map[int64]table.State{5: table.StatePublished}}, want: "too_late -",
		},
		"overtaken": {target: 5, g: table.Group{Head: &table.Row{Number: 5, Revision: 11}}, want: "superseded -"},
		"overtaken, its message ended": {target: 4, g: table.Group{
			Head: &table.Row{Number: 5, Revision: 11}, Ended: map[int64]table.State{4: table.StatePublished},
		}, want: "too_late -"},
		"not overtaken": {target: 5, g: table.Group{Head: &table.Row{Number: 5, Revision: 9}}},
	} {
		op := &table.Row{Number: 10, Verb: table.VerbCancel}
		op.Target.Int64, op.Target.Valid = c.target, c.target != 0
		v, ok := judgeByTable(&c.g, op)
		require.Equal(t, c.want != "", ok, name)
		if ok {
			require.Equal(t, c.want, v.text(), name)
		}
	}
}

// TestMaybeOut: of which rows a copy may be out, if Redis knows nothing of them.
func TestMaybeOut(t *testing.T) {
	t.Parallel()
	look := outlook{now: time.UnixMilli(1_000_000_000)}
	for name, c := range map[string]struct {
		due     time.Duration
		state   table.State
		maybe   bool
		want    bool
		ifOlder bool
		mark    store.Mark
	}{
		"pending, far":                             {due: time.Hour, mark: store.MarkDueIfOlder},
		"pending, overdue":                         {due: -remembered + time.Second, ifOlder: true, mark: store.MarkDueIfOlder},
		"pending, for longer than remembered":      {due: -remembered - time.Second, want: true, mark: store.MarkAlways},
		"as the row says":                          {due: time.Hour, maybe: true, want: true, mark: store.MarkAlways},
		"stored, far":                              {due: time.Hour, state: table.StateStored},
		"stored, due before Redis is asked":        {due: askedWithin + clockMargin - time.Second, state: table.StateStored, want: true},
		"pending, due before Redis is asked":       {due: askedWithin + clockMargin - time.Second, ifOlder: true, mark: store.MarkDueIfOlder},
		"stored, due":                              {due: -time.Second, state: table.StateStored, want: true},
		"as the row says, which is stored already": {due: time.Hour, state: table.StateStored, maybe: true, want: true},
	} {
		r := &table.Row{State: c.state, Maybe: c.maybe, DueMs: look.now.Add(c.due).UnixMilli()}
		want, ifOlder := look.maybeOut(r)
		require.Equal(t, []bool{c.want, c.ifOlder}, []bool{want, ifOlder}, name)
		if c.state == table.StatePending {
			require.Equal(t, c.mark, look.markOf(r), name)
		}
	}
}

// TestMaybeOutIfOlder: of a pending row that is due it depends on when Redis has lost
// what it had (I11), which is asked once a batch.
func TestMaybeOutIfOlder(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		made, born time.Duration // before now; 0: unknown
		want       table.State
	}{
		"nobody knows":           {made: time.Hour, want: table.StateCancelled},
		"made before a loss":     {made: time.Hour, born: time.Second, want: table.StateUnknown},
		"made just after a loss": {made: time.Minute, born: time.Minute + time.Second, want: table.StateUnknown},
		"made long after a loss": {made: time.Minute, born: time.Hour, want: table.StateCancelled},
	} {
		redis := &bornStore{}
		if c.born != 0 {
			redis.born = now.Add(-c.born)
		}
		b := &batch{verdicts: newVerdicts(), redis: redis, outlook: outlook{now: now, ahead: skewMargin}}
		var groups []*table.Group
		for i := range int64(3) {
			groups = append(groups, &table.Group{
				Ended:      map[int64]table.State{},
				Head:       &table.Row{Number: 2 * i, DueMs: now.UnixMilli(), CreatedMs: now.Add(-c.made).UnixMilli()},
				Operations: []*table.Row{{Number: 2*i + 1, Identity: table.Identity{ID: "id"}, Token: "~token-of-cancel", Verb: table.VerbCancel}},
			})
		}
		b.operateAll(t.Context(), t.Context(), nil, groups)
		for i := range int64(3) {
			require.Equal(t, c.want, b.updates[2*i+1].State, name)
		}
		require.EqualValues(t, 1, redis.asked.Load(), "once a batch")
	}
}

type bornStore struct {
	outbox.Store
	born  time.Time
	asked atomic.Int64
}

func (s *bornStore) CancelRow(context.Context, store.Operation) store.Answer {
	return store.Answer{Code: store.NotFound}
}

func (s *bornStore) Born(context.Context) ([]time.Time, error) {
	s.asked.Add(1)
	return []time.Time{{}, s.born}, nil
}
