package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// TestOperations goes through where a message may be when it is cancelled or
// rescheduled. The relay starts when the stage is set.
func TestOperations(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		for name, test := range map[string]func(*realScene){
			"pending beyond the horizon": pendingFar,
			"pending within the horizon": pendingNear,
			"pushed by the producer":     pushed,
			"published before the relay": publishedEarly,
			"stored":                     storedRows,
			"in flight":                  inFlight,
			"gone from redis":            goneRows,
			"deleted":                    deletedRows,
			"unlisted":                   unlistedRows,
			"several in a row":           severalInARow,
			"an older one hits no later": olderOperation,
			"forgotten":                  forgottenRows,
			"unfit":                      unfitOperations,
		} {
			t.Run(name, func(t *testing.T) {
				s := newReal(t, d)
				test(s)
				s.sound()
			})
		}
	})
}

func pendingFar(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(far)})
	old, _ := s.read(a)
	b := s.insert(insert{id: "b", dueMs: s.due(far)})
	c := s.insert(insert{id: "c", dueMs: s.due(far)})
	due := s.due(2 * far)
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: due})
	soonerC := s.insert(insert{id: "c", verb: verbReschedule, dueMs: s.due(soon)})
	s.start()
	s.requireState(cancelA, stateCancelled)
	s.requireState(a, stateCancelled)
	s.requireState(laterB, stateStored)
	s.requireState(soonerC, stateStored)
	s.requireStored(c)
	require.NotNil(s.t, s.find("", "c"))
	row, _ := s.read(b)
	op, _ := s.read(laterB)
	require.Equal(s.t, statePending, row.state)
	require.Equal(s.t, []any{op.token, due, laterB}, []any{row.token, row.dueMs, row.revision})
	// A late writer of the old tokens brings nothing back.
	m := &message.Message{ID: "a", Topic: "t"}
	require.Equal(s.t, store.EndedCancelled, s.store.Rows().Put(s.t.Context(), []store.Row{{Token: old.token, Message: m}})[0].Code)
	require.Nil(s.t, s.find("", "b"))
}

func pendingNear(s *realScene) {
	a := s.insert(insert{key: "k", id: "a", dueMs: s.due(past)})
	b := s.insert(insert{key: "k", id: "b", dueMs: s.due(past)})
	cancelA := s.insert(insert{key: "k", id: "a", verb: verbCancel})
	laterB := s.insert(insert{key: "k", id: "b", verb: verbReschedule, dueMs: s.due(far)})
	s.start()
	s.requireState(cancelA, stateCancelled)
	s.requireState(a, stateCancelled)
	s.requireState(laterB, stateStored)
	row, _ := s.read(b)
	require.Equal(s.t, statePending, row.state, "it was not loaded before it was rescheduled")
	require.Nil(s.t, s.find("k", "a"))
	require.Nil(s.t, s.find("k", "b"))
}

func pushed(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(soon), tried: true})
	b := s.insert(insert{id: "b", dueMs: s.due(soon), tried: true})
	c := s.insert(insert{id: "c", dueMs: s.due(soon), tried: true})
	for _, n := range []int64{a, b, c} {
		require.Equal(s.t, store.Created, s.put(n).Code)
	}
	due := s.due(2 * soon)
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: due})
	s.start()
	s.requireState(cancelA, stateCancelled)
	s.requireState(a, stateCancelled)
	s.requireState(laterB, stateStored)
	s.requireState(b, stateStored)
	s.requireState(c, stateStored)
	require.Nil(s.t, s.find("", "a"))
	require.Equal(s.t, due, s.find("", "b").DueAt.UnixMilli())
	op, _ := s.read(laterB)
	row, _ := s.read(b)
	require.Equal(s.t, op.token, row.token)
	require.Equal(s.t, due, row.dueMs)
	require.NotNil(s.t, s.find("", "c"))
}

func publishedEarly(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(past), tried: true})
	b := s.insert(insert{id: "b", dueMs: s.due(past), tried: true})
	c := s.insert(insert{id: "c", dueMs: s.due(past), tried: true})
	for _, n := range []int64{a, b, c} {
		require.Equal(s.t, store.Created, s.put(n).Code)
	}
	s.ack(s.take())
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	s.start()
	s.requireState(cancelA, stateTooLate)
	s.requireState(a, statePublished)
	s.requireState(laterB, stateTooLate)
	s.requireState(b, statePublished)
	s.requireState(c, statePublished)
	require.Nil(s.t, s.find("", "b"))
}

func storedRows(s *realScene) {
	_, stop := s.start()
	a := s.insert(insert{id: "a", dueMs: s.due(soon)})
	b := s.insert(insert{id: "b", dueMs: s.due(soon)})
	s.requireState(a, stateStored)
	s.requireState(b, stateStored)
	stop()
	due := s.due(10 * time.Second)
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	soonerB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: due})
	s.start()
	s.requireState(cancelA, stateCancelled)
	s.requireState(soonerB, stateStored)
	s.requireState(a, stateCancelled)
	require.Nil(s.t, s.find("", "a"))
	require.Equal(s.t, due, s.find("", "b").DueAt.UnixMilli())
	row, _ := s.read(b)
	require.Equal(s.t, stateStored, row.state)
	require.Equal(s.t, due, row.dueMs)
	again := s.insert(insert{id: "b", verb: verbCancel})
	s.requireState(again, stateCancelled)
	s.requireState(b, stateCancelled)
}

func inFlight(s *realScene) {
	_, stop := s.start()
	a := s.insert(insert{id: "a", dueMs: s.due(past)})
	b := s.insert(insert{id: "b", dueMs: s.due(past)})
	s.requireState(a, stateStored)
	s.requireState(b, stateStored)
	stop()
	s.take()
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	// Pending, and in flight by the producer's own push.
	c := s.insert(insert{id: "c", dueMs: s.due(past), tried: true})
	require.Equal(s.t, store.Created, s.put(c).Code)
	s.take()
	cancelC := s.insert(insert{id: "c", verb: verbCancel})
	s.start()
	s.requireState(cancelA, stateTooLate)
	s.requireState(laterB, stateTooLate)
	s.requireState(cancelC, stateTooLate)
	s.requireState(a, stateStored)
	s.requireState(c, stateStored)
}

// goneRows: what Redis has no trace of was lost, and not published in time; what was
// due may have been published before.
func goneRows(s *realScene) {
	_, stop := s.start()
	numbers := map[string]int64{}
	for id, due := range map[string]time.Duration{"a": past, "b": past, "c": far / 6, "d": far / 6} {
		numbers[id] = s.insert(insert{id: id, dueMs: s.due(due)})
		s.requireStored(numbers[id])
	}
	stop()
	s.lose()
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	cancelC := s.insert(insert{id: "c", verb: verbCancel})
	laterD := s.insert(insert{id: "d", verb: verbReschedule, dueMs: s.due(soon)})
	s.start()
	require.Equal(s.t, reasonForgotten, s.requireState(cancelA, stateUnknown))
	require.Equal(s.t, reasonForgotten, s.requireState(laterB, stateUnknown))
	s.requireState(cancelC, stateCancelled)
	s.requireState(laterD, stateStored)
	s.requireState(numbers["a"], stateCancelled)
	s.requireState(numbers["c"], stateCancelled)
	s.eventually("they are put back", func() bool { return s.find("", "b") != nil && s.find("", "d") != nil })
	require.True(s.t, s.find("", "b").MaybePublished)
	require.False(s.t, s.find("", "d").MaybePublished)
	require.Nil(s.t, s.find("", "a"))
}

// deletedRows: of a message whose row is gone nobody knows what became of it.
func deletedRows(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(soon)})
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	_, err := s.db.query("").add("DELETE FROM {t} WHERE id = ?", a).exec(s.t.Context(), s.db.db)
	require.NoError(s.t, err)
	s.start()
	s.requireState(cancelA, stateUnknown)
}

// unlistedRows: an operation touches no message that is no row's.
func unlistedRows(s *realScene) {
	m := &message.Message{ID: "a", Topic: "t"}
	answers := s.store.Producer().Schedule(s.t.Context(), []store.Request{{Message: m, When: store.When{Ms: s.due(soon)}}}, false, store.Durability{})
	require.NoError(s.t, answers[0].Err)
	s.start()
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterA := s.insert(insert{id: "a", verb: verbReschedule, dueMs: s.due(soon)})
	require.Equal(s.t, reasonNotInTable, s.requireState(cancelA, stateUnknown))
	require.Equal(s.t, reasonNotInTable, s.requireState(laterA, stateUnknown))
	require.NotNil(s.t, s.find("", "a"))
}

func severalInARow(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(soon)})
	first := s.insert(insert{id: "a", verb: verbReschedule, dueMs: s.due(far)})
	due := s.due(2 * soon)
	second := s.insert(insert{id: "a", verb: verbReschedule, dueMs: due})
	b := s.insert(insert{id: "b", dueMs: s.due(soon), tried: true})
	require.Equal(s.t, store.Created, s.put(b).Code)
	moveB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(2 * soon)})
	cancelB := s.insert(insert{id: "b", verb: verbCancel})
	againB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	s.start()
	s.requireState(first, stateStored)
	s.requireState(second, stateStored)
	s.requireState(moveB, stateStored)
	s.requireState(cancelB, stateCancelled)
	require.Equal(s.t, reasonWasEnded, s.requireState(againB, stateTooLate))
	s.requireState(a, stateStored)
	row, _ := s.read(a)
	require.Equal(s.t, []int64{due, second}, []int64{row.dueMs, row.revision})
	require.Equal(s.t, due, s.find("", "a").DueAt.UnixMilli())
	s.requireState(b, stateCancelled)
	require.Nil(s.t, s.find("", "b"))
}

// olderOperation: an operation that is older than a later schedule of the id
// does not touch it.
func olderOperation(s *realScene) {
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	newA := s.insert(insert{id: "a", dueMs: s.due(soon), tried: true})
	require.Equal(s.t, store.Created, s.put(newA).Code)
	moveB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(2 * soon)})
	newB := s.insert(insert{id: "b", dueMs: s.due(soon)})
	s.start()
	s.requireState(cancelA, stateUnknown)
	s.requireState(moveB, stateUnknown)
	s.requireState(newA, stateStored)
	s.requireState(newB, stateStored)
	require.NotNil(s.t, s.find("", "a"))
	require.Less(s.t, s.find("", "b").DueAt.UnixMilli(), s.due(soon))
	// Later still, when the message is stored already.
	tx, commit := s.begin()
	late := s.insertInto(tx, insert{id: "c", verb: verbCancel})
	c := s.insert(insert{id: "c", dueMs: s.due(soon)})
	s.requireState(c, stateStored)
	commit()
	s.requireState(late, stateUnknown)
	require.NotNil(s.t, s.find("", "c"))
}

func forgottenRows(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(-time.Hour)})
	b := s.insert(insert{id: "b", dueMs: s.due(-time.Hour)})
	c := s.insert(insert{id: "c", dueMs: s.due(-time.Hour)})
	d := s.insert(insert{id: "d", dueMs: s.due(past)})
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	s.start()
	require.Equal(s.t, reasonForgotten, s.requireState(cancelA, stateUnknown))
	s.requireState(a, stateCancelled)
	require.Equal(s.t, reasonForgotten, s.requireState(laterB, stateUnknown))
	s.requireState(b, stateStored)
	s.requireState(c, stateStored)
	s.requireState(d, stateStored)
	// Marked ones say so when they are cancelled.
	for id, want := range map[string]store.Code{"b": store.DoneMaybePublished, "c": store.DoneMaybePublished, "d": store.Done} {
		require.Equal(s.t, want, s.store.Producer().Cancel(s.t.Context(), id, "", store.Durability{}).Code, id)
	}
}

func unfitOperations(s *realScene) {
	a := s.insert(insert{id: "a", dueMs: s.due(soon)})
	odd := s.insert(insert{id: "a", verb: 7})
	ugly := s.insert(insert{id: "b", verb: verbCancel, token: "x"})
	early := s.insert(insert{id: "c", verb: verbReschedule, dueMs: -1})
	spaced := s.insert(insert{id: " ", verb: verbCancel})
	good := s.insert(insert{id: "d", verb: verbCancel})
	s.start()
	for _, n := range []int64{odd, ugly, early, spaced} {
		require.NotEmpty(s.t, s.requireState(n, stateRefused))
	}
	s.requireState(good, stateUnknown)
	s.requireStored(a)
}
