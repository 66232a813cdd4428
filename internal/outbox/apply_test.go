package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

var moveTo = moved{token: "~new", dueMs: 7, revision: 9}

// text shows an update in a word: "-" is none.
func (u update) text() string {
	var words []string
	if u.remove {
		words = append(words, "deleted")
	}
	if u.state != statePending {
		words = append(words, u.state.String())
	}
	if u.move != nil {
		words = append(words, "moved")
	}
	if u.tried {
		words = append(words, "tried")
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, "+")
}

func (v verdict) text() string {
	text := v.op.text() + " " + v.head.text()
	if v.stop {
		text += " stop"
	}
	return text
}

var codeNames = map[store.Code]string{
	store.Done: "done", store.DoneMaybePublished: "maybe", store.InFlight: "in flight", store.NotFound: "not found",
	store.EndedPublished: "was published", store.EndedCancelled: "was cancelled", store.NoBody: "no body",
	store.EndedMoved: "moved", store.Unknown: "unknown", store.Created: "created", store.Mine: "mine", store.Dead: "dead",
	store.Waiting: "waiting", store.Replaced: "replaced", store.NotLooked: "not looked",
	store.Later: "later",
}

var placeNames = map[place]string{placePending: "pending", placeStored: "stored", placeGone: "gone", placeUnlisted: "unlisted"}

// judged is the verdict where rows are kept until their messages are published:
// of the operation, and of the message's row. All other answers are none.
var judged = map[string]map[string]string{
	"cancel pending": {
		"done": "cancelled cancelled", "maybe": "unknown cancelled", "in flight": "too_late -", "not found": "cancelled cancelled",
		"was published": "too_late published", "was cancelled": "cancelled cancelled", "no body": "refused -",
	},
	"cancel stored": {
		"done": "cancelled cancelled", "maybe": "unknown cancelled", "in flight": "too_late -", "not found": "too_late -",
		"was published": "too_late published", "was cancelled": "cancelled cancelled", "no body": "refused -",
	},
	"cancel gone": {
		"done": "cancelled -", "maybe": "unknown -", "in flight": "too_late -", "not found": "too_late -",
		"was published": "too_late -", "was cancelled": "cancelled -", "no body": "refused -",
	},
	"cancel unlisted": {
		"done": "cancelled -", "maybe": "unknown -", "in flight": "too_late -", "not found": "unknown -",
		"was published": "too_late -", "was cancelled": "cancelled -", "no body": "refused -",
	},
	"reschedule pending": {
		"done": "stored stored+moved", "maybe": "unknown stored+moved", "in flight": "too_late -", "not found": "stored moved",
		"was published": "too_late published", "was cancelled": "too_late cancelled", "no body": "refused -",
	},
	"reschedule stored": {
		"done": "stored stored+moved", "maybe": "unknown stored+moved", "in flight": "too_late -", "not found": "too_late -",
		"was published": "too_late published", "was cancelled": "too_late cancelled", "no body": "refused -",
	},
	"reschedule gone": {
		"done": "stored -", "maybe": "unknown -", "in flight": "too_late -", "not found": "too_late -",
		"was published": "too_late -", "was cancelled": "too_late -", "no body": "refused -",
	},
	"reschedule unlisted": {
		"done": "stored -", "maybe": "unknown -", "in flight": "too_late -", "not found": "unknown -",
		"was published": "too_late -", "was cancelled": "too_late -", "no body": "refused -",
	},
}

// forgotten and repeated are where the evidence changes the verdict.
var (
	forgottenVerdicts = map[string]string{
		"cancel pending not found": "unknown unknown", "reschedule pending not found": "unknown moved+tried",
	}
	repeatedVerdicts = map[string]string{
		"cancel stored not found": "unknown -", "reschedule stored not found": "unknown -",
		"cancel gone not found": "unknown -", "reschedule gone not found": "unknown -",
	}
)

// TestJudge goes through every verb, place, answer, piece of evidence and
// retention.
func TestJudge(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, v := range []verb{verbCancel, verbReschedule} {
		for p, placeName := range placeNames {
			for code, codeName := range codeNames {
				for flags := range 8 {
					s := situation{verb: v, place: p, forgotten: flags&1 != 0, repeated: flags&2 != 0, op: moveTo}
					k := decider{untilPublished: flags&4 != 0}
					name := v.String() + " " + placeName
					want, ok := judged[name][codeName]
					switch {
					case code == store.Later:
						want = "- - stop"
					case !ok:
						want = "tried - stop"
					}
					if w := forgottenVerdicts[name+" "+codeName]; s.forgotten && w != "" {
						want = w
					}
					if w := repeatedVerdicts[name+" "+codeName]; s.repeated && w != "" {
						want = w
					}
					if !k.untilPublished {
						want = strings.ReplaceAll(want, "stored+moved", "deleted")
						want = strings.ReplaceAll(want, "too_late published", "too_late deleted")
					}
					got := k.judge(s, store.Answer{Code: code})
					require.Equal(t, want, got.text(), "%s: %s, flags %d", name, codeName, flags)
					requireMoved(t, got)
					seen++
				}
			}
		}
	}
	require.Equal(t, 2*4*len(codeNames)*8, seen)
}

func requireMoved(t *testing.T, v verdict) {
	t.Helper()
	require.Nil(t, v.op.move)
	if v.head.move != nil {
		require.Equal(t, moveTo, *v.head.move)
	}
	if v.op.state == stateUnknown || v.op.state == stateRefused {
		require.NotEmpty(t, v.op.reason, "says why")
	}
	// I11: what says done has no doubt; what is in doubt does not say done.
	if v.op.state == stateCancelled && v.head.state != statePending {
		require.Equal(t, stateCancelled, v.head.state)
		require.Empty(t, v.head.reason)
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
	want := map[string]string{
		"later": "- - stop", "full": "- - stop", "layout": "- - stop", "unsure": "tried - stop", "other": "tried - stop", "invalid": "refused -",
	}
	for name, err := range failures() {
		for p := range placeNames {
			for _, v := range []verb{verbCancel, verbReschedule} {
				for _, published := range []bool{false, true} {
					got := decider{published}.judge(situation{verb: v, place: p, op: moveTo}, store.Answer{Code: store.Done, Err: err})
					require.Equal(t, want[name], got.text(), "%s %s %s", v, placeNames[p], name)
				}
			}
		}
	}
}

func TestPutVerdicts(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"created": "stored", "mine": "stored", "was published": "published", "was cancelled": "cancelled",
		"waiting": "refused", "in flight": "refused", "dead": "refused",
	}
	for code, name := range codeNames {
		for _, published := range []bool{false, true} {
			expect, ok := want[name]
			if !ok {
				expect = "tried"
			}
			if !published && (expect == "stored" || expect == "published") {
				expect = "deleted"
			}
			got := decider{published}.put(store.Answer{Code: code, Reason: "why"})
			require.Equal(t, expect, got.text(), name)
			require.Equal(t, got.state == stateRefused, got.reason != "", name)
		}
	}
	wantFailures := map[string]string{"later": "-", "full": "-", "layout": "-", "unsure": "tried", "other": "tried", "invalid": "refused"}
	for name, err := range failures() {
		require.Equal(t, wantFailures[name], decider{}.put(store.Answer{Code: store.Created, Err: err}).text(), name)
	}
	require.Equal(t, "deleted", decider{}.put(store.Answer{Code: store.Created, Err: store.ErrNotDurable}).text())
}

func TestEnded(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"cancel published": "too_late", "cancel cancelled": "cancelled", "cancel refused": "cancelled", "cancel unknown": "unknown",
		"reschedule published": "too_late", "reschedule cancelled": "too_late", "reschedule refused": "too_late", "reschedule unknown": "unknown",
	}
	for s := statePending; s <= stateSuperseded; s++ {
		for _, v := range []verb{verbCancel, verbReschedule} {
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
	head := func(number int64, s state) *row { return &row{number: number, state: s, revision: 3} }
	for name, c := range map[string]struct {
		g      group
		target int64
		want   string // empty: Redis is asked
		place  place
	}{
		"nothing known":              {place: placeUnlisted},
		"target deleted":             {target: 5, place: placeGone},
		"target published":           {target: 5, g: group{ended: map[int64]state{5: statePublished}}, want: "too_late -"},
		"another target published":   {target: 5, g: group{ended: map[int64]state{6: statePublished}}, place: placeGone},
		"head pending":               {target: 5, g: group{head: head(5, statePending)}, place: placePending},
		"head stored":                {target: 5, g: group{head: head(5, stateStored)}, place: placeStored},
		"head pending, came unseen":  {g: group{head: head(5, statePending)}, place: placePending},
		"head is another":            {target: 4, g: group{head: head(5, statePending)}, want: "superseded -"},
		"head is later, pending":     {g: group{head: head(15, statePending)}, place: placeUnlisted},
		"head is later, stored":      {g: group{head: head(15, stateStored)}, want: "superseded -"},
		"head is later, target gone": {target: 5, g: group{head: head(15, statePending)}, place: placeGone},
		"head is later, target published": {
			target: 5, g: group{head: head(15, stateStored), ended: map[int64]state{5: statePublished}}, want: "too_late -",
		},
		"overtaken":          {target: 5, g: group{head: head(5, statePending), overtaken: 11}, want: "superseded -"},
		"not overtaken":      {target: 5, g: group{head: head(5, statePending), overtaken: 9}, place: placePending},
		"overtaken, by head": {target: 5, g: group{head: &row{number: 5, revision: 11}}, want: "superseded -"},
	} {
		op := &row{number: 10, verb: verbCancel}
		op.target.Int64, op.target.Valid = c.target, c.target != 0
		v, ok := c.g.judgeByTable(op)
		require.Equal(t, c.want != "", ok, name)
		if ok {
			require.Equal(t, c.want, v.text(), name)
		} else {
			require.Equal(t, placeNames[c.place], placeNames[c.g.place(op)], name)
		}
	}
}

func TestForgotten(t *testing.T) {
	t.Parallel()
	const now = 1_000_000_000
	minute := int64(60_000)
	e := evidence{databaseMs: now, horizonMs: 10 * minute}
	died := evidence{databaseMs: now, horizonMs: 10 * minute, deaths: []int64{now - 30*minute}}
	young := remembered.Milliseconds()
	for name, c := range map[string]struct {
		e    evidence
		r    row
		want bool
	}{
		"untried, old":                      {e, row{createdMs: now - minute}, false},
		"tried, young":                      {e, row{tried: true, createdMs: now - young}, false},
		"tried, old":                        {e, row{tried: true, createdMs: now - young - 1}, true},
		"tried by the producer, due later":  {e, row{tried: true, createdMs: now - 2*minute, dueMs: now + 20*minute}, true},
		"died after it was created":         {died, row{createdMs: now - 31*minute}, true},
		"died before it was created":        {died, row{createdMs: now - 29*minute}, false},
		"died just before it was created":   {died, row{createdMs: now - 30*minute + deathMargin.Milliseconds()}, true},
		"died before it could be loaded":    {died, row{createdMs: now - 60*minute, dueMs: now - 15*minute}, false},
		"died when it could be loaded":      {died, row{createdMs: now - 60*minute, dueMs: now - 21*minute}, true},
		"rescheduled, may have been sooner": {died, row{createdMs: now - 60*minute, dueMs: now, revision: 4}, true},
		"operation":                         {died, row{verb: verbCancel, createdMs: now - 60*minute}, true},
		"young operation":                   {died, row{verb: verbCancel, createdMs: now - 29*minute}, false},
	} {
		require.Equal(t, c.want, c.e.forgotten(&c.r), name)
	}
}
