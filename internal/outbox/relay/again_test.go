package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestOperationsAgain: where a transaction's end failed after Redis had answered,
// all is done again, and the answers are the same: a message that nobody had
// brought to Redis was rescheduled, rescheduled again, and cancelled.
func TestOperationsAgain(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		a := s.Insert(insert{ID: "a", DueMs: s.Due(far)})
		first := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
		second := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: s.Due(2 * soon)})
		cancel := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
		// A cancel with nothing but the message before it.
		b := s.Insert(insert{ID: "b", DueMs: s.Due(far)})
		only := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
		token := func(number int64) string {
			r, _ := s.Read(number)
			return r.Token
		}
		ctx, soon := t.Context(), time.UnixMilli(s.Due(soon))
		require.NoError(t, s.Store.Rows().RescheduleRow(ctx, store.Operation{ID: "a", Token: token(first), Target: token(a)}, soon).Err)
		require.NoError(t, s.Store.Rows().RescheduleRow(ctx, store.Operation{ID: "a", Token: token(second), Target: token(first)}, soon).Err)
		require.NoError(t, s.Store.Rows().CancelRow(ctx, store.Operation{ID: "a", Token: token(cancel), Target: token(second)}).Err)
		require.NoError(t, s.Store.Rows().RescheduleRow(ctx, store.Operation{ID: "b", Token: token(only), Target: token(b)}, soon).Err)

		s.start()
		s.RequireState(first, table.StateStored)
		s.RequireState(second, table.StateStored)
		s.RequireState(cancel, table.StateCancelled)
		s.RequireState(a, table.StateCancelled)
		s.RequireState(only, table.StateStored)
		s.Eventually("the other is loaded", func() bool { return s.Find("", "b") != nil })
		require.Nil(t, s.Find("", "a"))
	})
}

// TestCancelAgain: a cancel came too late, since the message was in flight; then it was not any more, and
// a reschedule after it was done. Their transaction was lost: the cancel must not be told that no such
// message is there.
func TestCancelAgain(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		message := s.Stored("a", soon)
		cancel := s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbCancel})
		replace := s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbReplace, Topic: "t", DueMs: s.Due(far)})
		due := s.Due(2 * soon)
		move := s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbReschedule, DueMs: due})
		token := func(number int64) string {
			r, _ := s.Read(number)
			return r.Token
		}
		o := store.Operation{ID: "a", Key: "k", Token: token(move), Target: token(message)}
		require.Equal(t, store.Done, s.Store.Rows().RescheduleRow(t.Context(), o, time.UnixMilli(due)).Code)

		s.start()
		s.RequireState(move, table.StateStored)
		require.Equal(t, reasonLater, s.RequireState(cancel, table.StateSuperseded))
		require.Equal(t, reasonLater, s.RequireState(replace, table.StateSuperseded))
		s.RequireState(message, table.StateStored)
		require.Equal(t, due, s.Find("k", "a").DueAt.UnixMilli())
	})
}

// TestCancelledAtOnce: what is judged in one transaction knows how the message has ended there.
func TestCancelledAtOnce(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		message := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
		first := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
		second := s.Insert(insert{ID: "a", Verb: table.VerbCancel})
		d.Exec(t, "UPDATE {t} SET target = NULL WHERE id IN (?, ?)", first, second) // They have not seen the message.
		s.start()
		s.RequireState(first, table.StateCancelled)
		s.RequireState(second, table.StateCancelled)
		s.RequireState(message, table.StateCancelled)
	})
}
