package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// tracedToken is the token of a message without a row.
const tracedToken = "~~34567890123456"

// validity is for how long the compensation of these tests may come again.
const validity = 24 * time.Hour

// compensated is a message of which only a compensation knows.
func (s *outboxScene) compensated(due time.Time) []store.Row {
	return []store.Row{{Token: tracedToken, Message: note(s.row, "compensated"), DueAt: due, Until: time.Now().Add(validity)}}
}

func (s *outboxScene) compensates(want store.Code, due time.Time) {
	s.Helper()
	answered(s, want, s.q.Rows().Put(s.Context(), s.compensated(due))[0])
}

// passes makes all tombstones as much older, and has a claim remove those that have expired.
func (s *outboxScene) passes(d time.Duration) {
	s.Helper()
	key := storetest.Key(s.q.Name(), 0, "gonettl")
	for token := range dump(s, s.rdb, s.q).GoneTTL {
		require.NoError(s, s.rdb.ZIncrBy(s.Context(), key, -float64(d.Milliseconds()), token).Err())
	}
	_, err := s.q.SteadyShard(0).Claim(s.Context(), s.b.request(0))
	require.NoError(s, err)
}

// TestCompensatedEnds: a compensation that comes again brings nothing back, for as
// long as it is valid, whatever has ended its message. It checks I11.
func TestCompensatedEnds(t *testing.T) {
	t.Parallel()
	replaces := func(s *outboxScene, when store.When) {
		answered(s, store.Replaced, s.q.Producer().Schedule(s.Context(), requests(when, s.row), true, store.Durability{})[0])
	}
	for name, end := range map[string]func(*outboxScene){
		"cancelled": func(s *outboxScene) {
			s.compensates(store.Created, farAhead)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
		},
		"rescheduled, cancelled": func(s *outboxScene) {
			s.compensates(store.Created, farAhead)
			require.Equal(s, store.Done, reschedule(s, s.q, s.row, later()))
			s.passes(2 * time.Minute)
			s.compensates(store.Mine, farAhead)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
		},
		"replaced, published": func(s *outboxScene) {
			s.compensates(store.Created, farAhead)
			replaces(s, past())
			s.b.finish(acked)
		},
		"published": func(s *outboxScene) {
			s.compensates(store.Created, rowDue)
			s.compensates(store.Mine, rowDue)
			s.b.finish(acked)
			s.compensates(store.EndedPublished, rowDue)
		},
		"dead, purged": func(s *outboxScene) {
			s.compensates(store.Created, rowDue)
			s.b.finish(buried)
			s.compensates(store.Mine, rowDue)
			_, err := inspect.NewAdmin(s.q).Purge(s.Context(), []string{s.row})
			require.NoError(s, err)
		},
		"dead, replaced, cancelled": func(s *outboxScene) {
			s.compensates(store.Created, rowDue)
			s.b.finish(buried)
			replaces(s, later())
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
		},
		"dead, redriven, cancelled": func(s *outboxScene) {
			s.compensates(store.Created, rowDue)
			s.b.finish(buried)
			_, err := inspect.NewAdmin(s.q).Redrive(s.Context(), []string{s.row})
			require.NoError(s, err)
			s.compensates(store.Mine, rowDue)
			require.Equal(s, store.Done, cancel(s, s.q, s.row))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOutboxScene(t)
			end(s)
			for _, passed := range []time.Duration{0, 2 * time.Minute, validity - 4*time.Minute} {
				s.passes(passed)
				answer := s.q.Rows().Put(t.Context(), s.compensated(farAhead))[0]
				require.NoError(t, answer.Err)
				require.Contains(t, []store.Code{store.EndedPublished, store.EndedCancelled}, answer.Code)
				require.Empty(t, sound(t, s.rdb, s.q).Msg)
			}
			require.Len(t, dump(t, s.rdb, s.q).Gone, 1, "the rest has been forgotten")
			s.passes(4 * time.Minute)
			require.Empty(t, dump(t, s.rdb, s.q).Gone)
			s.compensates(store.Created, farAhead)
		})
	}
}

// TestCompensatedAcrossLayouts: the earlier layout is kept for as long as a shard
// of it remembers a message whose compensation may come again.
func TestCompensatedAcrossLayouts(t *testing.T) {
	t.Parallel()
	s := newOutboxScene(t)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), s.rdb, s.q.Name(), 4) })
	for layout.Home("", s.row, 4) == 0 { // That of the earlier layout.
		s.row += "x"
	}
	s.compensates(store.Created, farAhead)
	require.Equal(t, store.Done, cancel(t, s.q, s.row))
	_, err := s.q.Layouts().SetShards(t.Context(), 4)
	require.NoError(t, err)
	steps := func() (earlier []int) {
		keeper := layout.NewKeeper(s.q.Layouts(), 0)
		for range 20 {
			require.NoError(t, keeper.Step(t.Context()))
			l, err := s.q.LoadLayout(t.Context())
			require.NoError(t, err)
			if earlier = l.Earlier; len(earlier) == 0 {
				break
			}
		}
		return earlier
	}
	require.Equal(t, []int{1}, steps())
	s.compensates(store.EndedCancelled, farAhead)
	s.passes(validity)
	require.Eventually(t, func() bool { return len(steps()) == 0 }, soon, 5*time.Millisecond)
}
