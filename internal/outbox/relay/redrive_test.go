package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestRedriven: a refused row that is pending again is judged anew.
func TestRedriven(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		number := s.Insert(insert{ID: "a", Key: "k", Topic: "bad \n", DueMs: s.Due(soon)})
		s.start()
		reason := s.RequireState(number, table.StateRefused)
		s.DB.Exec(t, "UPDATE {t} SET reason = '' WHERE id = ?", number)
		tally, err := s.DB.Refused().Redrive(t.Context(), []int64{number}, false)
		require.NoError(t, err)
		require.Equal(t, table.Tally{Redriven: 1}, tally)
		require.Equal(t, reason, s.RequireState(number, table.StateRefused), "it is refused again")
		s.DB.Exec(t, "UPDATE {t} SET topic = 'good' WHERE id = ?", number)
		tally, err = s.DB.Refused().Redrive(t.Context(), []int64{number, number + 1000}, false)
		require.NoError(t, err)
		require.Equal(t, table.Tally{Redriven: 1, Busy: 1}, tally)
		s.RequireStored(number)
		require.NotNil(t, s.Find("k", "a"))
	})
}
