package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestOperations goes through where a message may be when it is cancelled or
// rescheduled. The relay starts when the stage is set.
func TestOperations(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
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
				s.Sound()
			})
		}
	})
}

func pendingFar(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(far)})
	old, _ := s.Read(a)
	b := s.Insert(insert{ID: "b", DueMs: s.Due(far)})
	c := s.Insert(insert{ID: "c", DueMs: s.Due(far)})
	due := s.Due(2 * far)
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: due})
	soonerC := s.Insert(insert{ID: "c", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	s.start()
	s.RequireState(cancelA, table.StateCancelled)
	s.RequireState(a, table.StateCancelled)
	s.RequireState(laterB, table.StateStored)
	s.RequireState(soonerC, table.StateStored)
	s.RequireStored(c)
	require.NotNil(s.t, s.Find("", "c"))
	row, _ := s.Read(b)
	op, _ := s.Read(laterB)
	require.Equal(s.t, table.StatePending, row.State)
	require.Equal(s.t, []any{op.Token, due, laterB}, []any{row.Token, row.DueMs, row.Revision})
	// A late writer of the old tokens brings nothing back.
	m := &message.Message{ID: "a", Topic: "t"}
	require.Equal(s.t, store.EndedCancelled, s.Store.Rows().Put(s.t.Context(), []store.Row{{Token: old.Token, Message: m}})[0].Code)
	require.Nil(s.t, s.Find("", "b"))
}

func pendingNear(s *realScene) {
	a := s.Insert(insert{Key: "k", ID: "a", DueMs: s.Due(past)})
	b := s.Insert(insert{Key: "k", ID: "b", DueMs: s.Due(past)})
	cancelA := s.Insert(insert{Key: "k", ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{Key: "k", ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(far)})
	s.start()
	s.RequireState(cancelA, table.StateCancelled)
	s.RequireState(a, table.StateCancelled)
	s.RequireState(laterB, table.StateStored)
	row, _ := s.Read(b)
	require.Equal(s.t, table.StatePending, row.State, "it was not loaded before it was rescheduled")
	require.Nil(s.t, s.Find("k", "a"))
	require.Nil(s.t, s.Find("k", "b"))
}

func pushed(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(soon), Tried: true})
	b := s.Insert(insert{ID: "b", DueMs: s.Due(soon), Tried: true})
	c := s.Insert(insert{ID: "c", DueMs: s.Due(soon), Tried: true})
	for _, n := range []int64{a, b, c} {
		require.Equal(s.t, store.Created, s.Put(n).Code)
	}
	due := s.Due(2 * soon)
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: due})
	s.start()
	s.RequireState(cancelA, table.StateCancelled)
	s.RequireState(a, table.StateCancelled)
	s.RequireState(laterB, table.StateStored)
	s.RequireState(b, table.StateStored)
	s.RequireState(c, table.StateStored)
	require.Nil(s.t, s.Find("", "a"))
	require.Equal(s.t, due, s.Find("", "b").DueAt.UnixMilli())
	op, _ := s.Read(laterB)
	row, _ := s.Read(b)
	require.Equal(s.t, op.Token, row.Token)
	require.Equal(s.t, due, row.DueMs)
	require.NotNil(s.t, s.Find("", "c"))
}

func publishedEarly(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(past), Tried: true})
	b := s.Insert(insert{ID: "b", DueMs: s.Due(past), Tried: true})
	c := s.Insert(insert{ID: "c", DueMs: s.Due(past), Tried: true})
	for _, n := range []int64{a, b, c} {
		require.Equal(s.t, store.Created, s.Put(n).Code)
	}
	s.Ack(s.Take())
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	s.start()
	s.RequireState(cancelA, table.StateTooLate)
	s.RequireState(a, table.StatePublished)
	s.RequireState(laterB, table.StateTooLate)
	s.RequireState(b, table.StatePublished)
	s.RequireState(c, table.StatePublished)
	require.Nil(s.t, s.Find("", "b"))
}

func storedRows(s *realScene) {
	_, stop := s.start()
	a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
	b := s.Insert(insert{ID: "b", DueMs: s.Due(soon)})
	s.RequireState(a, table.StateStored)
	s.RequireState(b, table.StateStored)
	stop()
	due := s.Due(10 * time.Second)
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	soonerB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: due})
	s.start()
	s.RequireState(cancelA, table.StateCancelled)
	s.RequireState(soonerB, table.StateStored)
	s.RequireState(a, table.StateCancelled)
	require.Nil(s.t, s.Find("", "a"))
	require.Equal(s.t, due, s.Find("", "b").DueAt.UnixMilli())
	row, _ := s.Read(b)
	require.Equal(s.t, table.StateStored, row.State)
	require.Equal(s.t, due, row.DueMs)
	again := s.Insert(insert{ID: "b", Verb: table.VerbCancel})
	s.RequireState(again, table.StateCancelled)
	s.RequireState(b, table.StateCancelled)
}

func inFlight(s *realScene) {
	_, stop := s.start()
	a := s.Insert(insert{ID: "a", DueMs: s.Due(past)})
	b := s.Insert(insert{ID: "b", DueMs: s.Due(past)})
	s.RequireState(a, table.StateStored)
	s.RequireState(b, table.StateStored)
	stop()
	s.Take()
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	// Pending, and in flight by the producer's own push.
	c := s.Insert(insert{ID: "c", DueMs: s.Due(past), Tried: true})
	require.Equal(s.t, store.Created, s.Put(c).Code)
	s.Take()
	cancelC := s.Insert(insert{ID: "c", Verb: table.VerbCancel})
	s.start()
	s.RequireState(cancelA, table.StateTooLate)
	s.RequireState(laterB, table.StateTooLate)
	s.RequireState(cancelC, table.StateTooLate)
	s.RequireState(a, table.StateStored)
	s.RequireState(c, table.StateStored)
}

// goneRows: what Redis has no trace of was lost, and not published in time; what was
// due may have been published before.
func goneRows(s *realScene) {
	_, stop := s.start()
	numbers := map[string]int64{}
	for id, due := range map[string]time.Duration{"a": past, "b": past, "c": far / 6, "d": far / 6} {
		numbers[id] = s.Insert(insert{ID: id, DueMs: s.Due(due)})
		s.RequireStored(numbers[id])
	}
	stop()
	s.Lose()
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	cancelC := s.Insert(insert{ID: "c", Verb: table.VerbCancel})
	laterD := s.Insert(insert{ID: "d", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	s.start()
	require.Equal(s.t, reasonForgotten, s.RequireState(cancelA, table.StateUnknown))
	require.Equal(s.t, reasonForgotten, s.RequireState(laterB, table.StateUnknown))
	s.RequireState(cancelC, table.StateCancelled)
	s.RequireState(laterD, table.StateStored)
	s.RequireState(numbers["a"], table.StateCancelled)
	s.RequireState(numbers["c"], table.StateCancelled)
	s.Eventually("they are put back", func() bool { return s.Find("", "b") != nil && s.Find("", "d") != nil })
	require.True(s.t, s.Find("", "b").MaybePublished)
	require.False(s.t, s.Find("", "d").MaybePublished)
	require.Nil(s.t, s.Find("", "a"))
}

// deletedRows: of a message whose row is gone nobody knows what became of it.
func deletedRows(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	s.DB.Exec(s.t, "DELETE FROM {t} WHERE id = ?", a)
	s.start()
	s.RequireState(cancelA, table.StateUnknown)
}

// unlistedRows: an operation touches no message that is no row's.
func unlistedRows(s *realScene) {
	m := &message.Message{ID: "a", Topic: "t"}
	answers := s.Store.Producer().Schedule(s.t.Context(), []store.Request{{Message: m, When: store.When{Ms: s.Due(soon)}}}, false, store.Durability{})
	require.NoError(s.t, answers[0].Err)
	s.start()
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterA := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	require.Equal(s.t, reasonNotInTable, s.RequireState(cancelA, table.StateUnknown))
	require.Equal(s.t, reasonNotInTable, s.RequireState(laterA, table.StateUnknown))
	require.NotNil(s.t, s.Find("", "a"))
}

func severalInARow(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
	first := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: s.Due(far)})
	due := s.Due(2 * soon)
	second := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: due})
	b := s.Insert(insert{ID: "b", DueMs: s.Due(soon), Tried: true})
	require.Equal(s.t, store.Created, s.Put(b).Code)
	moveB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(2 * soon)})
	cancelB := s.Insert(insert{ID: "b", Verb: table.VerbCancel})
	againB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	s.start()
	s.RequireState(first, table.StateStored)
	s.RequireState(second, table.StateStored)
	s.RequireState(moveB, table.StateStored)
	s.RequireState(cancelB, table.StateCancelled)
	require.Equal(s.t, reasonWasEnded, s.RequireState(againB, table.StateTooLate))
	s.RequireState(a, table.StateStored)
	row, _ := s.Read(a)
	require.Equal(s.t, []int64{due, second}, []int64{row.DueMs, row.Revision})
	require.Equal(s.t, due, s.Find("", "a").DueAt.UnixMilli())
	s.RequireState(b, table.StateCancelled)
	require.Nil(s.t, s.Find("", "b"))
}

// olderOperation: an operation that is older than a later schedule of the id
// does not touch it.
func olderOperation(s *realScene) {
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	newA := s.Insert(insert{ID: "a", DueMs: s.Due(soon), Tried: true})
	require.Equal(s.t, store.Created, s.Put(newA).Code)
	moveB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(2 * soon)})
	newB := s.Insert(insert{ID: "b", DueMs: s.Due(soon)})
	s.start()
	s.RequireState(cancelA, table.StateUnknown)
	s.RequireState(moveB, table.StateUnknown)
	s.RequireState(newA, table.StateStored)
	s.RequireState(newB, table.StateStored)
	require.NotNil(s.t, s.Find("", "a"))
	require.Less(s.t, s.Find("", "b").DueAt.UnixMilli(), s.Due(soon))
	// Later still, when the message is stored already.
	tx, commit := s.Begin()
	late := s.InsertInto(tx, insert{ID: "c", Verb: table.VerbCancel})
	c := s.Insert(insert{ID: "c", DueMs: s.Due(soon)})
	s.RequireState(c, table.StateStored)
	commit()
	s.RequireState(late, table.StateUnknown)
	require.NotNil(s.t, s.Find("", "c"))
}

func forgottenRows(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(-time.Hour)})
	b := s.Insert(insert{ID: "b", DueMs: s.Due(-time.Hour)})
	c := s.Insert(insert{ID: "c", DueMs: s.Due(-time.Hour)})
	d := s.Insert(insert{ID: "d", DueMs: s.Due(past)})
	cancelA := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
	laterB := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	s.start()
	require.Equal(s.t, reasonForgotten, s.RequireState(cancelA, table.StateUnknown))
	s.RequireState(a, table.StateCancelled)
	require.Equal(s.t, reasonForgotten, s.RequireState(laterB, table.StateUnknown))
	s.RequireState(b, table.StateStored)
	s.RequireState(c, table.StateStored)
	s.RequireState(d, table.StateStored)
	// Marked ones say so when they are cancelled.
	for id, want := range map[string]store.Code{"b": store.DoneMaybePublished, "c": store.DoneMaybePublished, "d": store.Done} {
		require.Equal(s.t, want, s.Store.Producer().Cancel(s.t.Context(), id, "", store.Durability{}).Code, id)
	}
}

func unfitOperations(s *realScene) {
	a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
	odd := s.Insert(insert{ID: "a", Verb: 7})
	ugly := s.Insert(insert{ID: "b", Verb: table.VerbCancel, Token: "x"})
	early := s.Insert(insert{ID: "c", Verb: table.VerbReschedule, DueMs: -1})
	spaced := s.Insert(insert{ID: " ", Verb: table.VerbCancel})
	good := s.Insert(insert{ID: "d", Verb: table.VerbCancel})
	s.start()
	for _, n := range []int64{odd, ugly, early, spaced} {
		require.NotEmpty(s.t, s.RequireState(n, table.StateRefused))
	}
	s.RequireState(good, table.StateUnknown)
	s.RequireStored(a)
}
