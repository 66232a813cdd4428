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
			"deleted when stored":        deletedRows,
			"unlisted":                   unlistedRows,
			"several in a row":           severalInARow,
			"cancelled, scheduled anew":  scheduledAnew,
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
	s.requireGone(c)
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
	s.start(untilPublished)
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
	s.start(untilPublished)
	s.requireState(cancelA, stateTooLate)
	s.requireState(a, statePublished)
	s.requireState(laterB, stateTooLate)
	s.requireState(b, statePublished)
	s.requireState(c, statePublished)
	require.Nil(s.t, s.find("", "b"))
}

func storedRows(s *realScene) {
	_, stop := s.start(untilPublished)
	a := s.insert(insert{id: "a", dueMs: s.due(soon)})
	b := s.insert(insert{id: "b", dueMs: s.due(soon)})
	s.requireState(a, stateStored)
	s.requireState(b, stateStored)
	stop()
	due := s.due(10 * time.Second)
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	soonerB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: due})
	s.start(untilPublished)
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
	_, stop := s.start(untilPublished)
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
	s.start(untilPublished)
	s.requireState(cancelA, stateTooLate)
	s.requireState(laterB, stateTooLate)
	s.requireState(cancelC, stateTooLate)
	s.requireState(a, stateStored)
	s.requireState(c, stateStored)
}

func goneRows(s *realScene) {
	_, stop := s.start(untilPublished)
	a := s.insert(insert{id: "a", dueMs: s.due(past)})
	b := s.insert(insert{id: "b", dueMs: s.due(past)})
	s.requireState(a, stateStored)
	s.requireState(b, stateStored)
	stop()
	s.ack(s.take())
	s.forget()
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	s.start(untilPublished)
	s.requireState(cancelA, stateTooLate)
	s.requireState(laterB, stateTooLate)
	s.requireState(a, stateStored) // The settler ends it.
	require.Nil(s.t, s.find("", "b"))
}

func deletedRows(s *realScene) {
	s.start()
	a := s.insert(insert{id: "a", dueMs: s.due(soon)})
	b := s.insert(insert{id: "b", dueMs: s.due(soon)})
	c := s.insert(insert{id: "c", dueMs: s.due(past)})
	for _, n := range []int64{a, b, c} {
		s.requireGone(n)
	}
	s.ack(s.take())
	cancelA := s.insert(insert{id: "a", verb: verbCancel, target: a})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, target: b, dueMs: s.due(2 * soon)})
	cancelC := s.insert(insert{id: "c", verb: verbCancel, target: c})
	s.requireState(cancelA, stateCancelled)
	s.requireState(laterB, stateStored)
	s.requireState(cancelC, stateTooLate)
	require.Nil(s.t, s.find("", "a"))
	require.Greater(s.t, s.find("", "b").DueAt.UnixMilli(), s.due(soon))
}

func unlistedRows(s *realScene) {
	m := &message.Message{ID: "a", Topic: "t"}
	answers := s.store.Producer().Schedule(s.t.Context(), []store.Request{{Message: m, When: store.When{Ms: s.due(soon)}}}, false, store.Durability{})
	require.NoError(s.t, answers[0].Err)
	s.start()
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	cancelB := s.insert(insert{id: "b", verb: verbCancel})
	laterC := s.insert(insert{id: "c", verb: verbReschedule, dueMs: s.due(soon)})
	s.requireState(cancelA, stateCancelled)
	require.Nil(s.t, s.find("", "a"))
	require.Equal(s.t, reasonNotInTable, s.requireState(cancelB, stateUnknown))
	s.requireState(laterC, stateUnknown)
	require.Nil(s.t, s.find("", "c"))
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
	s.start(untilPublished)
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

// scheduledAnew: where rows are deleted when they are stored, an id may be
// cancelled and scheduled in one transaction.
func scheduledAnew(s *realScene) {
	_, stop := s.start()
	s.requireGone(s.insert(insert{id: "a", dueMs: s.due(soon)}))
	s.requireGone(s.insert(insert{id: "b", dueMs: s.due(soon)}))
	stop()
	due := s.due(2 * soon)
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	newA := s.insert(insert{id: "a", dueMs: due})
	cancelB := s.insert(insert{id: "b", verb: verbCancel})
	newB := s.insert(insert{id: "b", dueMs: due, tried: true})
	require.Equal(s.t, store.Waiting, s.put(newB).Code, "the producer's push finds the old one")
	s.start()
	s.requireState(cancelA, stateCancelled)
	s.requireState(cancelB, stateCancelled)
	s.requireGone(newA)
	s.requireGone(newB)
	require.Equal(s.t, due, s.find("", "a").DueAt.UnixMilli())
	require.Equal(s.t, due, s.find("", "b").DueAt.UnixMilli())
}

// olderOperation: an operation that is older than a later schedule of the id
// does not touch it.
func olderOperation(s *realScene) {
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	newA := s.insert(insert{id: "a", dueMs: s.due(soon), tried: true})
	require.Equal(s.t, store.Created, s.put(newA).Code)
	moveB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(2 * soon)})
	newB := s.insert(insert{id: "b", dueMs: s.due(soon)})
	s.start(untilPublished)
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
	s.requireState(late, stateSuperseded)
	require.NotNil(s.t, s.find("", "c"))
}

func forgottenRows(s *realScene) {
	longAgo := s.now() - time.Hour.Milliseconds()
	a := s.insert(insert{id: "a", dueMs: s.due(past), tried: true, createdMs: longAgo})
	b := s.insert(insert{id: "b", dueMs: s.due(past), tried: true, createdMs: longAgo})
	c := s.insert(insert{id: "c", dueMs: s.due(past), tried: true, createdMs: longAgo})
	d := s.insert(insert{id: "d", dueMs: s.due(past), createdMs: longAgo})
	cancelA := s.insert(insert{id: "a", verb: verbCancel})
	laterB := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
	s.start(untilPublished)
	require.Equal(s.t, reasonForgotten, s.requireState(cancelA, stateUnknown))
	s.requireState(a, stateUnknown)
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
	s.requireGone(a)
}
