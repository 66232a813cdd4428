package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestMovedAndMore: what a reschedule gives to a message's row stays there when
// the same transaction then stores or cancels the message. A row that is stored
// with another token than its message would never hear of its publishing.
func TestMovedAndMore(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		relay, err := New(s.config)
		require.NoError(t, err)
		take := func(id string) {
			taken, err := relay.TakeIdentity(t.Context(), s.Orders, "k", id)
			require.NoError(t, err)
			require.Equal(t, TakeDone, taken)
		}

		stored := s.Insert(insert{Key: "k", ID: "stored", DueMs: s.Due(far)})
		first, _ := s.Read(stored)
		due := s.Due(soon)
		move := s.Insert(insert{Key: "k", ID: "stored", Verb: table.VerbReschedule, DueMs: due})
		take("stored")
		op, _ := s.Read(move)
		row, _ := s.Read(stored)
		require.Equal(t, []any{table.StateStored, op.Token, due, move}, []any{row.State, row.Token, row.DueMs, row.Revision})
		require.Equal(t, op.Token, s.Find("k", "stored").Token)

		require.Equal(t, []string{first.Token, first.Token}, []string{row.UID, s.Find("k", "stored").UID()}, "consumers know it by that")

		cancelled := s.Insert(insert{Key: "k", ID: "cancelled", DueMs: s.Due(far)})
		move = s.Insert(insert{Key: "k", ID: "cancelled", Verb: table.VerbReschedule, DueMs: due})
		s.Insert(insert{Key: "k", ID: "cancelled", Verb: table.VerbCancel})
		take("cancelled")
		row, _ = s.Read(cancelled)
		require.Equal(t, []any{table.StateCancelled, due, move}, []any{row.State, row.DueMs, row.Revision})
		require.Equal(t, 1, s.Count("status = 3 AND op = 0 AND finished_ms IS NOT NULL"))
	})
}
