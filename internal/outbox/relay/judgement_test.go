package relay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// oneMessage is what Redis has of an identity, the table's rows of it, and what was published.
type oneMessage struct {
	t    *rapid.T
	now  time.Time
	rows map[int64]*table.Row // by number
	// why are the reasons of rows, last is how the last message has ended.
	why       map[int64]string
	published map[int64]time.Time // first, by the number of the message's row
	meant     map[int64]int64     // the message's row, by an operation's that was asked for
	hidden    func(int64) bool    // rows that are not committed yet

	live     string // the token
	due      int64
	marked   bool
	inFlight bool
	gone     map[string]string
	born     time.Time
	owner    map[string]int64 // the message's row, by each of its tokens
}

func (m *oneMessage) outlook() outlook { return outlook{now: m.now, horizon: time.Hour} }

// trouble is what may happen between two calls: time passes, the message is published where it is due, or
// goes back though it was, or Redis loses all that it has.
func (m *oneMessage) trouble() {
	switch rapid.SampledFrom([]string{"", "", "time", "time", "publish", "publish", "reclaim", "lose"}).Draw(m.t, "trouble") {
	case "time":
		m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 5, 30}).Draw(m.t, "passes")) * time.Second)
	case "publish":
		if m.live == "" || m.due > m.now.UnixMilli() {
			return
		}
		if number := m.owner[m.live]; m.published[number].IsZero() {
			m.published[number] = m.now
		}
		if m.inFlight = !m.inFlight; !m.inFlight {
			m.gone[m.live], m.live = "p", ""
		}
	case "reclaim":
		if !m.inFlight {
			return
		}
		m.inFlight, m.marked = false, true
	case "lose":
		m.now = m.now.Add(time.Second)
		m.live, m.inFlight, m.gone, m.born = "", false, map[string]string{}, m.now
	}
}

// failover takes a mark back of which the row was told, as it is when a client reschedules the message.
func (m *oneMessage) failover() {
	r := m.rows[m.owner[m.live]]
	if m.live == "" || m.inFlight || !m.marked || r.State != table.StateStored || r.Token != m.live {
		return
	}
	r.Maybe, m.marked = true, false
}

// trace is how a token has ended, as the scripts leave it: p(ublished), c(ancelled), C: and a copy may be out, n: nobody
// had brought it, or m and the token in its place.
func (m *oneMessage) trace(token string) (what string) {
	for what = m.gone[token]; strings.HasPrefix(what, "m"); what = m.gone[token] {
		if token = what[1:]; token == m.live {
			return what
		}
	}
	return what
}

var traces = map[string]store.Code{"p": store.EndedPublished, "c": store.EndedCancelled, "C": store.EndedMaybe}

// put is that of a store.
func (m *oneMessage) put(r *table.Row) store.Answer {
	switch what := m.trace(r.Token); {
	case m.live == r.Token:
		return store.Answer{Code: store.Mine}
	case what == "n":
		return store.Answer{Code: store.EndedCancelled}
	case traces[what] != 0:
		return store.Answer{Code: traces[what]}
	case m.gone[r.Token] != "":
		return store.Answer{Code: store.EndedMoved}
	case m.live != "":
		return store.Answer{Code: store.Waiting}
	}
	o := m.outlook()
	m.live, m.due, m.owner[r.Token] = r.Token, r.DueMs, r.Number
	m.marked = o.markOf(r) == store.MarkAlways || r.DueMs <= m.now.Add(clockMargin).UnixMilli() && o.made(r).Before(m.born)
	return store.Answer{Code: store.Created}
}

// operate is a cancel's or a reschedule's of a store.
func (m *oneMessage) operate(op *table.Row, o store.Operation) store.Answer {
	isMove := op.Verb == table.VerbReschedule
	done := store.Answer{Code: store.Done}
	if m.marked {
		done.Code = store.DoneMaybePublished
	}
	switch what := m.trace(o.Target); {
	case isMove && m.live == o.Token:
		return done
	case isMove && m.trace(o.Token) == "C":
		return store.Answer{Code: store.DoneMaybePublished}
	case isMove && traces[m.trace(o.Token)] != 0:
		return store.Answer{Code: store.Done}
	case m.live == o.Target && m.inFlight:
		return store.Answer{Code: store.InFlight}
	case m.live == o.Target && isMove:
		m.gone[o.Target], m.live, m.due, m.owner[o.Token] = "m"+o.Token, o.Token, op.DueMs, m.owner[o.Target]
		return done
	case m.live == o.Target:
		m.gone[o.Target], m.live = map[bool]string{false: "c", true: "C"}[m.marked], ""
		return done
	case traces[what] != 0:
		return store.Answer{Code: traces[what]}
	case strings.HasPrefix(what, "m") && what[1:] == m.live && !isMove:
		return store.Answer{Code: store.EndedMoved}
	}
	if m.gone[o.Target] == "" {
		m.gone[o.Target] = map[bool]string{false: "n", true: "m" + o.Token}[isMove]
	}
	return store.Answer{Code: store.NotFound}
}

// group is what a transaction has gathered: copies, of which nothing stays if it is lost.
func (m *oneMessage) group() *table.Group {
	g := &table.Group{Ended: map[int64]table.State{}}
	for _, number := range m.numbers() {
		r := *m.rows[number]
		switch {
		case r.Verb == table.VerbSchedule && r.State <= table.StateStored:
			g.Head = &r
		case r.Verb == table.VerbSchedule:
			g.Ended[number] = table.Update{State: r.State, Reason: m.why[number]}.End()
			g.Last = g.Ended[number]
		case r.State == table.StatePending && !m.hidden(number):
			g.Operations = append(g.Operations, &r)
		}
	}
	return g
}

func (m *oneMessage) numbers() (list []int64) {
	for number := range m.rows {
		list = append(list, number)
	}
	slices.Sort(list)
	return list
}

// write is that of a transaction.
func (m *oneMessage) write(updates table.Updates) {
	for number, u := range updates {
		r := m.rows[number]
		if u.Move != nil {
			r.Rename(u.Move.Token)
			r.DueMs, r.Revision, r.Maybe = u.Move.DueMs, u.Move.Revision, r.Maybe || u.Move.Maybe
			r.State = u.State
		}
		r.Maybe = r.Maybe || u.Maybe
		if u.State != table.StatePending {
			r.State, m.why[number] = u.State, u.Reason
		}
		if u.Lives {
			r.Verb = table.VerbSchedule
		}
	}
}

// judge judges what is pending, and loads the message where that is its turn. The answers, or the
// transaction, may be lost.
func (m *oneMessage) judge(isFaulty bool) {
	g := m.group()
	j := newJudgement(m.outlook(), g)
	calls := 0
	for q := j.next(); q.row != nil; q = j.next() {
		require.Less(m.t, calls, 50, "it asks without end")
		calls++
		if q.fit {
			j.fits(nil)
			continue
		}
		require.Equal(m.t, g.Head.Token, q.operation.Target, "the token in force")
		m.meant[q.row.Number] = g.Head.Number
		fate := "answered"
		if isFaulty {
			m.trouble()
			fate = rapid.SampledFrom([]string{fate, fate, "lost", "answer lost"}).Draw(m.t, "fate")
		}
		answer := store.Answer{Err: errors.New("away")}
		if fate != "lost" {
			if made := m.operate(q.row, q.operation); fate == "answered" {
				answer = made
			}
		}
		j.takeAnswer(answer, m.born)
	}
	if len(g.Operations) == 0 && g.Head != nil && g.Head.State == table.StatePending {
		j.recordPut(g.Head, m.put(g.Head))
	}
	if !isFaulty || rapid.IntRange(0, 2).Draw(m.t, "transaction") > 0 {
		m.write(j.updates)
	}
}

// TestJudgement plays stories of one identity: a message and operations on it, while Redis
// publishes, loses what it has, or gives no answer, and transactions are lost. What the rows say at
// last is true: of what is cancelled nothing was published, and of what is rescheduled nothing
// before, unless they say that nobody knows.
func TestJudgement(t *testing.T) {
	t.Parallel()
	for range 30 { // Some of what may go wrong comes once in a thousand stories.
		rapid.Check(t, judgementStory)
	}
}

func judgementStory(t *rapid.T) {
	m := &oneMessage{
		t: t, now: time.UnixMilli(1_700_000_000_000), rows: map[int64]*table.Row{}, why: map[int64]string{}, published: map[int64]time.Time{},
		gone: map[string]string{}, meant: map[int64]int64{}, owner: map[string]int64{},
	}
	due := func(label string) int64 {
		return m.now.Add(time.Duration(rapid.SampledFrom([]int{-3, 20, 600}).Draw(t, label)) * time.Second).UnixMilli()
	}
	head := &table.Row{Number: 1, Token: "~token-of-message", DueMs: due("due"), CreatedMs: m.now.Add(-10 * time.Second).UnixMilli()}
	head.Token = head.Token[:16]
	m.rows[1] = head
	if rapid.Bool().Draw(t, "put by its producer") {
		m.put(head)
	}
	comes, rounds, after := map[int64]int{}, rapid.IntRange(0, 8).Draw(t, "rounds"), 0 // when operations come
	for i := range int64(rapid.IntRange(0, 3).Draw(t, "operations")) {
		op := &table.Row{Number: 2 + i, Identity: table.Identity{ID: "id"}, Token: fmt.Sprintf("~operation-%05d", i), DueMs: due("to"), CreatedMs: m.now.UnixMilli()}
		op.Verb = rapid.SampledFrom([]table.Verb{table.VerbCancel, table.VerbReschedule, table.VerbReplace}).Draw(t, "verb")
		after += rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(t, "after")
		m.rows[op.Number], comes[op.Number] = op, after
	}
	for round := range rounds {
		m.hidden = func(number int64) bool { return comes[number] > round }
		m.trouble()
		if rapid.IntRange(0, 3).Draw(t, "failover") == 0 {
			m.failover()
		}
		m.judge(true)
		m.requireTrue()
	}
	m.hidden = func(int64) bool { return false }
	for range 20 { // What was in flight ends, and all is judged.
		if m.inFlight {
			m.gone[m.live], m.live, m.inFlight = "p", "", false
		}
		m.judge(false)
	}
	m.requireTrue()
	for number, r := range m.rows {
		require.NotEqual(t, table.StatePending, r.State, "%d is not judged: %s", number, r.Verb)
	}
}

func (m *oneMessage) requireTrue() {
	applied, isJudged := int64(0), len(m.group().Operations) == 0
	for _, number := range m.numbers() {
		r := m.rows[number]
		out, isOut := m.published[number]
		switch {
		case r.Verb == table.VerbSchedule && r.State == table.StateCancelled && m.why[number] == "" && !r.Maybe:
			require.False(m.t, isOut, "%d is cancelled, and was published at %v", number, out)
		case r.Verb == table.VerbCancel && r.State == table.StateCancelled:
			_, isOut := m.published[m.meant[number]]
			require.False(m.t, isOut, "a cancel is told as done, and its message was published")
		case r.Verb == table.VerbReschedule && r.State == table.StateStored:
			applied = cmp.Or(max(applied, number), number)
		}
	}
	for number, r := range m.rows {
		if isJudged && r.Verb == table.VerbSchedule && r.State == table.StateStored && m.live != "" && m.owner[m.live] == number {
			require.Equal(m.t, r.DueMs, m.due, "the row says another due time than Redis")
		}
	}
	if r := m.rows[1]; applied > 0 && r.State <= table.StateStored {
		require.GreaterOrEqual(m.t, r.Revision, applied, "a reschedule is told as done, and is not")
	}
}

// TestToldOnce: a message that is moved is told of as one operation, and not as stored once more.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	head := &table.Row{Number: 1, Token: "~token-of-messag", State: table.StateStored}
	op := &table.Row{Number: 2, Identity: table.Identity{ID: "id"}, Token: "~operation-00001", Verb: table.VerbReschedule, DueMs: 7}
	j := newJudgement(outlook{}, &table.Group{Head: head, Operations: []*table.Row{op}})
	require.Equal(t, op, j.next().row)
	j.takeAnswer(store.Answer{Code: store.Done}, time.Time{})
	require.Equal(t, []announcement{{op.Identity, table.VerbReschedule, table.StateStored, ""}}, j.applied)
	require.Equal(t, table.StateStored, j.updates[1].State)
}

// TestUnnotedWaits: a reschedule that its producer may still change is not asked for, and waits.
func TestUnnotedWaits(t *testing.T) {
	t.Parallel()
	op := &table.Row{Number: 2, Token: "~operation-00001", Verb: table.VerbReschedule, DueMs: 7, Revision: 7}
	j := newJudgement(outlook{}, &table.Group{Head: &table.Row{Number: 1}, Operations: []*table.Row{op}})
	require.Nil(t, j.next().row)
	require.Equal(t, 1, j.waiting)
	require.Empty(t, j.updates)
}

// TestMarkedByTheOneBefore: of two reschedules at once the first learns that a copy may be out; the second, of
// which Redis knows nothing, keeps that.
func TestMarkedByTheOneBefore(t *testing.T) {
	t.Parallel()
	head := &table.Row{Number: 1, Token: "~token-of-messag", State: table.StateStored}
	ops := make([]*table.Row, 2)
	for i := range ops {
		ops[i] = &table.Row{
			Number: int64(2 + i), Identity: table.Identity{ID: "id"}, Token: fmt.Sprintf("~operation-%05d", i),
			Verb: table.VerbReschedule, DueMs: int64(7 + i),
		}
	}
	j := newJudgement(outlook{}, &table.Group{Head: head, Operations: ops})
	for i, code := range []store.Code{store.DoneMaybePublished, store.NotFound} {
		require.Equal(t, ops[i], j.next().row)
		j.takeAnswer(store.Answer{Code: code}, time.Time{})
	}
	require.Equal(t, table.Move{Token: ops[1].Token, DueMs: 8, Revision: 3, Maybe: true}, *j.updates[1].Move)
}
