package store_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// rowsOracle is what a shard remembers of the tokens of rows.
type rowsOracle struct {
	fates   map[string]string // tombstones, none of which expires in a test
	ledger  map[string]string
	answers map[string]store.Answer
}

func newRowsOracle() rowsOracle {
	return rowsOracle{fates: map[string]string{}, ledger: map[string]string{}, answers: map[string]store.Answer{}}
}

// leave remembers a fate, where none is known.
func (r rowsOracle) leave(token, fate string) {
	if _, known := r.fates[token]; token != "" && !known {
		r.fates[token] = fate
	}
}

// end notes the end of a message: over is whether it covers an older fate.
func (r rowsOracle) end(e *entry, fate string, over bool) {
	if e.token == "" {
		return
	}
	if fate == "c" {
		fate = cancelled(e)
	}
	if over {
		r.fates[e.token] = fate
	}
	r.leave(e.token, fate)
	r.ledger[e.token] = fate + e.member
}

// settled notes the end of a message by a settle: the ledger alone keeps a late writer out, until it has forgotten.
func (r rowsOracle) settled(e *entry, fate string) {
	if e.token == "" {
		return
	}
	if fate == "c" {
		fate = cancelled(e)
	}
	r.ledger[e.token] = fate + e.member
}

// cancelled is the fate of a message that is: a copy may be out.
func cancelled(e *entry) string {
	if done(e) == store.DoneMaybePublished {
		return "C"
	}
	return "c"
}

// fate follows a token; moved is whether another one took its place.
func (r rowsOracle) fate(token string, e *entry, hops int) (code store.Code, moved bool) {
	for range hops {
		if e != nil && e.token == token {
			return store.Mine, moved
		}
		what := r.fates[token]
		if what == "" {
			what = r.ledger[token]
		}
		switch {
		case strings.HasPrefix(what, "p"):
			return store.EndedPublished, moved
		case strings.HasPrefix(what, "c"):
			return store.EndedCancelled, moved
		case strings.HasPrefix(what, "C"):
			return store.EndedMaybe, moved
		case strings.HasPrefix(what, "n"):
			return store.EndedCancelled, moved
		case !strings.HasPrefix(what, "m"):
			return 0, moved
		}
		token, moved = what[1:], true
	}
	return 0, moved
}

func (o *oracle) put(member, token, body string, due int64, marked bool) store.Code {
	e := o.entries[member]
	code, moved := o.rows.fate(token, e, 8)
	switch {
	case code != 0:
		return code
	case moved:
		return store.EndedMoved
	case e != nil:
		return e.where
	}
	attempts := message.Attempts{}
	if marked {
		attempts = message.Attempts{Begun: 1, MaybeOut: 1}
	}
	o.create(member, body, due, attempts)
	o.entries[member].token = token
	return store.Created
}

func (o *oracle) cancelRow(member, token, target string) store.Code {
	e := o.entries[member]
	if answer, known := o.rows.answers[token]; known {
		return answer.Code
	}
	if code, moved := o.rows.fate(target, e, 8); code == store.Mine && moved {
		return store.EndedMoved
	}
	if e != nil && e.token != target {
		e = nil // Another message.
	}
	switch {
	case e == nil:
		code, _ := o.rows.fate(target, nil, 8)
		own := o.rows.fates[target] == "n" || o.endsIn(target, "n")
		if code != 0 && !own {
			return code
		}
		o.rows.leave(target, "n")
		return store.NotFound
	case e.where == store.InFlight:
		return store.InFlight
	}
	delete(o.entries, member)
	o.counters["cancelled"]++
	o.rows.leave(target, cancelled(e))
	o.rows.answers[token] = store.Answer{Code: done(e)}
	return done(e)
}

// endsIn reports whether the tokens that took the place of one end in that fate.
func (o *oracle) endsIn(token, fate string) bool {
	for range 9 {
		what := o.rows.fates[token]
		if !strings.HasPrefix(what, "m") {
			return what == fate
		}
		token = what[1:]
	}
	return false
}

func (o *oracle) rescheduleRow(member, token, target string, due int64) store.Code {
	e := o.entries[member]
	if answer, known := o.rows.answers[token]; known {
		return answer.Code
	}
	if e != nil && e.token != token && e.token != target {
		e = nil // Another message.
	}
	switch {
	case e != nil && e.token == token:
		return done(e)
	case e == nil:
		switch code, _ := o.rows.fate(token, nil, 9); {
		case code == store.EndedMaybe, code == store.EndedPublished:
			return store.DoneMaybePublished
		case code != 0 && !o.endsIn(token, "n"):
			return store.Done
		}
		if code, _ := o.rows.fate(target, nil, 9); code != 0 && !o.endsIn(target, "n") {
			return code
		}
		o.rows.leave(target, "m"+token)
		return store.NotFound
	case e.where == store.InFlight:
		return store.InFlight
	}
	code := done(e)
	if e.where == store.Dead {
		o.counters["redriven"]++
		e.where, e.attempts, e.reason = store.Waiting, redriven(e.attempts), ""
	}
	o.rows.leave(target, "m"+token)
	o.generation++
	e.moveTo(due)
	e.generation, e.token = o.generation, token
	o.counters["rescheduled"]++
	o.rows.answers[token] = store.Answer{Code: code}
	return code
}

// row is one that the machine has brought, or an operation of one.
type row struct{ id, key, verb, token, target string }

// unwritten is the number of a row that nobody has brought.
const unwritten = 999_999

// drawRow is a new one, or one that comes again, however late. What a
// reschedule did not find is brought under its token.
func (m *machine) drawRow(t *rapid.T, verb string) row {
	var known []row
	for _, r := range m.rows {
		if r.verb == verb || verb == "put" && r.verb == "reschedule" {
			known = append(known, r)
		}
	}
	if len(known) > 0 && rapid.Bool().Draw(t, "again") {
		return rapid.SampledFrom(known).Draw(t, "row")
	}
	id, key, _ := drawIdentity(t)
	r := row{id: id, key: key, verb: verb, token: rowToken(len(m.rows)), target: rowToken(unwritten)}
	for _, head := range m.rows {
		if verb != "put" && head.verb != "cancel" && head.id == id && head.key == key && rapid.Bool().Draw(t, "target") {
			r.target = head.token
		}
	}
	m.rows = append(m.rows, r)
	return r
}

func (m *machine) put(t *rapid.T) {
	r := m.drawRow(t, "put")
	m.bodies++
	body, marked := fmt.Sprintf("body %d", m.bodies), rapid.Bool().Draw(t, "marked")
	due := m.now(t) + rapid.SampledFrom([]int64{-never.Milliseconds(), never.Milliseconds()}).Draw(t, "due")
	_, o := m.home(r.id, r.key)
	member := message.Member(r.id, r.key)
	answer := m.q.Rows().Put(t.Context(), []store.Row{{
		Token: r.token, Message: &message.Message{ID: r.id, Key: r.key, Topic: "t", Headers: must(message.WithTags(nil, []string{"row", r.id})), Body: []byte(body)},
		DueAt: time.UnixMilli(due), Mark: store.MarkIf(marked),
	}})[0]
	require.NoError(t, answer.Err)
	require.Equal(t, o.put(member, r.token, body, due, marked), answer.Code)
	switch e := o.entries[member]; {
	case answer.Code == store.Created, answer.Code == store.Waiting, answer.Code == store.Mine && e.where == store.Waiting:
		require.Equal(t, e.due, answer.DueAt.UnixMilli())
	case answer.Code == store.Dead:
		require.Equal(t, e.reason, answer.Reason)
	}
}

func (m *machine) cancelRow(t *rapid.T) {
	r := m.drawRow(t, "cancel")
	_, o := m.home(r.id, r.key)
	answer := m.q.Rows().CancelRow(t.Context(), store.Operation{ID: r.id, Key: r.key, Token: r.token, Target: r.target})
	require.NoError(t, answer.Err)
	require.Equal(t, o.cancelRow(message.Member(r.id, r.key), r.token, r.target), answer.Code)
}

func (m *machine) rescheduleRow(t *rapid.T) {
	r := m.drawRow(t, "reschedule")
	_, o := m.home(r.id, r.key)
	due := drawWhen(t)
	if due.Relative {
		due = store.When{Ms: m.now(t) + due.Ms}
	}
	answer := m.q.Rows().RescheduleRow(t.Context(), store.Operation{ID: r.id, Key: r.key, Token: r.token, Target: r.target}, time.UnixMilli(due.Ms))
	require.NoError(t, answer.Err)
	require.Equal(t, o.rescheduleRow(message.Member(r.id, r.key), r.token, r.target, due.Ms), answer.Code)
}

func (m *machine) forget(t *rapid.T) {
	shard := drawShard(t)
	rows, err := m.q.Rows().Settled(t.Context(), shard, 1000)
	require.NoError(t, err)
	require.NoError(t, m.q.Rows().ForgetFates(t.Context(), shard, rows))
	o := m.oracles[shard].rows
	for token, entry := range o.ledger {
		if fate := entry[:1]; fate != "d" {
			o.leave(token, fate)
		}
	}
	clear(o.ledger)
}

// checkRows compares tombstones and ledger.
func (m *machine) checkRows(t *rapid.T, shard int, o *oracle, s *storetest.Shard) {
	fates := map[string]string{}
	for token, fate := range s.Gone {
		if message.IsOutboxToken(token) {
			fates[token] = fate
		}
	}
	require.Equal(t, o.rows.fates, fates, "tombstones of shard %d", shard)
	require.Equal(t, o.rows.ledger, s.Settled, "ledger of shard %d", shard)
}
