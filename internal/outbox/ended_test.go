package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAfterTheEnd: an operation that comes when the message's row says how it
// ended is answered by that, and by no more than that.
func TestAfterTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReal(t, d)
		s.insert(insert{id: "cancelled", state: stateCancelled, dueMs: s.due(past)})
		copied := s.insert(insert{id: "copied", state: stateCancelled, dueMs: s.due(past)})
		_, err := d.query("").add("UPDATE {t} SET reason = ? WHERE id = ?", reasonCopy, copied).exec(t.Context(), d.db)
		require.NoError(t, err)
		again := s.insert(insert{id: "cancelled", verb: verbCancel})
		later := s.insert(insert{id: "cancelled", verb: verbReschedule, dueMs: s.due(soon)})
		unlisted := s.insert(insert{id: "copied", verb: verbCancel})
		listed := s.insert(insert{id: "copied", verb: verbCancel, target: copied})
		s.start()
		s.requireState(again, stateCancelled)
		require.Equal(t, reasonWasEnded, s.requireState(later, stateTooLate))
		s.requireState(unlisted, stateUnknown)
		s.requireState(listed, stateUnknown)
		require.Nil(t, s.find("", "cancelled"))
		require.Nil(t, s.find("", "copied"))
	})
}
