package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// TestForgetLeavesTombstones is I12: a writer that has lost its row's lock, and
// comes after the row was told, does not bring back what has ended.
func TestForgetLeavesTombstones(t *testing.T) {
	t.Parallel()
	published := func(s *outboxScene) {
		s.puts(store.Created)
		s.b.finish(acked)
	}
	// forgets has the row told and its entry forgotten, and says what stays of it.
	forgets := func(s *outboxScene) string {
		require.Len(s, s.ledger(), 1)
		return sound(s, s.rdb, s.q).Gone[s.t]
	}
	outboxCases(t, map[string]func(*outboxScene){
		"published": func(s *outboxScene) {
			published(s)
			s.forgotten() // The database was away for longer than a minute.
			require.Equal(s, "p", forgets(s))
			s.puts(store.EndedPublished)
		},
		"cancelled": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
			s.forgotten()
			require.Equal(s, "c", forgets(s))
			s.puts(store.EndedCancelled)
		},
		"moved": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, reschedule(s, s.q, s.row, later()))
			require.Empty(s, forgets(s), "it lives on")
			s.puts(store.Mine)
		},
		"a tombstone that is over": func(s *outboxScene) {
			published(s)
			key := (&crowd{q: s.q}).key("gonettl")
			require.NoError(s, s.rdb.ZAdd(s.Context(), key, redisZ(s.t, past().Ms)).Err())
			require.Equal(s, "p", forgets(s), "it begins anew")
			s.puts(store.EndedPublished)
		},
		"changed since it was read": func(s *outboxScene) {
			s.puts(store.Created)
			require.Equal(s, store.Done, reschedule(s, s.q, s.row, past()))
			rows, err := s.q.Rows().Settled(s.Context(), 0, 10)
			require.NoError(s, err)
			s.b.finish(acked)
			s.forgotten()
			require.NoError(s, s.q.Rows().ForgetFates(s.Context(), 0, rows))
			after := sound(s, s.rdb, s.q)
			require.Empty(s, after.Gone)
			require.Len(s, after.Settled, 1)
		},
	})
}
