package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// mergeable writes a reschedule that a producer may still change.
func (s *realScene) mergeable(id string, due time.Duration) int64 {
	number := s.Insert(insert{ID: id, Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
	s.DB.Exec(s.t, "UPDATE {t} SET revision = ? WHERE id = ?", s.Due(due), number)
	return number
}

// TestMergeableIsNoted: what a relay may have tried a producer changes no more, also if the
// relay died.
func TestMergeableIsNoted(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		t.Run("applied", func(t *testing.T) {
			s := newReal(t, d)
			old := s.Stored("a", soon)
			number := s.mergeable("a", 2*soon)
			s.start()
			s.RequireStored(number)
			row, _ := s.Read(old)
			require.Equal(t, number, row.Revision)
			op, _ := s.Read(number)
			require.Equal(t, op.Token, row.Token)
			require.Equal(t, op.DueMs, s.Find("k", "a").DueAt.UnixMilli())
			require.False(t, op.IsUnnoted())
		})
		t.Run("redis does not answer", func(t *testing.T) {
			s := newScene(t, d)
			s.Insert(insert{ID: "a", DueMs: s.Due(soon), State: table.StateStored, Token: "~aaaaaaaaaaaaaaa"})
			number := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: s.Due(2 * soon)})
			s.DB.Exec(t, "UPDATE {t} SET revision = due_ms WHERE id = ?", number)
			s.redis.with(func() { s.redis.fail = func(table.Identity) error { return store.ErrUnavailable } })
			s.start()
			s.Eventually("it is noted, before redis is asked", func() bool { op, _ := s.Read(number); return !op.IsUnnoted() })
			require.Equal(t, "pending", s.State(number))
			s.redis.with(func() { s.redis.fail = nil })
			s.RequireStored(number)
		})
		t.Run("one identity at once", func(t *testing.T) {
			s := newReal(t, d)
			s.Stored("a", soon)
			number := s.mergeable("a", 2*soon)
			relay := s.relay()
			taken, err := relay.TakeIdentity(t.Context(), s.Orders, "k", "a")
			require.NoError(t, err)
			require.Equal(t, TakeLocked, taken)
			require.Equal(t, "pending", s.State(number))
			taken, err = relay.TakeIdentity(t.Context(), s.Orders, "k", "a")
			require.NoError(t, err)
			require.Equal(t, TakeDone, taken)
			require.Equal(t, "stored", s.State(number))
		})
		t.Run("among others", func(t *testing.T) {
			s := newReal(t, d)
			s.Stored("a", soon)
			var last int64
			for range 5 {
				s.Insert(insert{ID: "a", Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(soon)})
				last = s.mergeable("a", 3*soon)
			}
			s.start()
			s.Drained()
			op, _ := s.Read(last)
			found := s.Find("k", "a")
			require.Equal(t, op.Token, found.Message.Token)
			require.Equal(t, op.DueMs, found.DueAt.UnixMilli())
		})
		t.Run("of another Redis", func(t *testing.T) {
			s := newReal(t, d)
			s.Stored("a", soon)
			number := s.mergeable("a", 2*soon)
			_, err := d.Lives().Confirm(t.Context(), s.Orders, "theirs")
			require.NoError(t, err)
			_, err = s.relay().TakeIdentity(t.Context(), s.Orders, "k", "a")
			require.ErrorIs(t, err, outbox.ErrOtherRedis)
			op, _ := s.Read(number)
			require.True(t, op.IsUnnoted(), "nothing is written")
		})
	})
}
