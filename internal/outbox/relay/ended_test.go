package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestAfterTheEnd: an operation that comes when the message's row says how it
// ended is answered by that, and by no more than that.
func TestAfterTheEnd(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		s.Insert(insert{ID: "cancelled", State: table.StateCancelled, DueMs: s.Due(past)})
		copied := s.Insert(insert{ID: "copied", State: table.StateCancelled, DueMs: s.Due(past)})
		d.Exec(t, "UPDATE {t} SET reason = ? WHERE id = ?", reasonCopy, copied)
		again := s.Insert(insert{ID: "cancelled", Verb: table.VerbCancel})
		later := s.Insert(insert{ID: "cancelled", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
		unlisted := s.Insert(insert{ID: "copied", Verb: table.VerbCancel})
		listed := s.Insert(insert{ID: "copied", Verb: table.VerbCancel, Target: copied})
		s.start()
		s.RequireState(again, table.StateCancelled)
		require.Equal(t, reasonWasEnded, s.RequireState(later, table.StateTooLate))
		s.RequireState(unlisted, table.StateUnknown)
		s.RequireState(listed, table.StateUnknown)
		require.Nil(t, s.Find("", "cancelled"))
		require.Nil(t, s.Find("", "copied"))
	})
}
