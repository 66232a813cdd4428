package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/store"
)

// TestOperationsAgain: where a transaction's end failed after Redis had answered,
// all is done again, and the answers are the same: a message that nobody had
// brought to Redis was rescheduled, rescheduled again, and cancelled.
func TestOperationsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReal(t, d)
		a := s.insert(insert{id: "a", dueMs: s.due(far)})
		first := s.insert(insert{id: "a", verb: verbReschedule, dueMs: s.due(soon)})
		second := s.insert(insert{id: "a", verb: verbReschedule, dueMs: s.due(2 * soon)})
		cancel := s.insert(insert{id: "a", verb: verbCancel})
		// A cancel with nothing but the message before it.
		b := s.insert(insert{id: "b", dueMs: s.due(far)})
		only := s.insert(insert{id: "b", verb: verbReschedule, dueMs: s.due(soon)})
		token := func(number int64) string {
			r, _ := s.read(number)
			return r.token
		}
		ctx, soon := t.Context(), time.UnixMilli(s.due(soon))
		require.NoError(t, s.store.Rows().RescheduleRow(ctx, store.Operation{ID: "a", Token: token(first), Target: token(a)}, soon).Err)
		require.NoError(t, s.store.Rows().RescheduleRow(ctx, store.Operation{ID: "a", Token: token(second), Target: token(first)}, soon).Err)
		require.NoError(t, s.store.Rows().CancelRow(ctx, store.Operation{ID: "a", Token: token(cancel), Target: token(second)}).Err)
		require.NoError(t, s.store.Rows().RescheduleRow(ctx, store.Operation{ID: "b", Token: token(only), Target: token(b)}, soon).Err)

		s.start()
		s.requireState(first, stateStored)
		s.requireState(second, stateStored)
		s.requireState(cancel, stateCancelled)
		s.requireState(a, stateCancelled)
		s.requireState(only, stateStored)
		s.eventually("the other is loaded", func() bool { return s.find("", "b") != nil })
		require.Nil(t, s.find("", "a"))
	})
}
