package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMovedAndMore: what a reschedule gives to a message's row stays there when
// the same transaction then stores or cancels the message. A row that is stored
// with another token than its message would never hear of its publishing.
func TestMovedAndMore(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReal(t, d)
		relay, err := NewRelay(s.config)
		require.NoError(t, err)
		take := func(id string) {
			taken, err := relay.TakeIdentity(t.Context(), s.orders, "k", id)
			require.NoError(t, err)
			require.Equal(t, TakenDone, taken)
		}

		stored := s.insert(insert{key: "k", id: "stored", dueMs: s.due(far)})
		due := s.due(soon)
		move := s.insert(insert{key: "k", id: "stored", verb: verbReschedule, dueMs: due})
		take("stored")
		op, _ := s.read(move)
		row, _ := s.read(stored)
		require.Equal(t, []any{stateStored, op.token, due, move}, []any{row.state, row.token, row.dueMs, row.revision})
		require.Equal(t, op.token, s.find("k", "stored").Token)

		cancelled := s.insert(insert{key: "k", id: "cancelled", dueMs: s.due(far)})
		move = s.insert(insert{key: "k", id: "cancelled", verb: verbReschedule, dueMs: due})
		s.insert(insert{key: "k", id: "cancelled", verb: verbCancel})
		take("cancelled")
		row, _ = s.read(cancelled)
		require.Equal(t, []any{stateCancelled, due, move}, []any{row.state, row.dueMs, row.revision})
		require.Equal(t, 1, s.count("status = 3 AND op = 0 AND finished_ms IS NOT NULL"))
	})
}
