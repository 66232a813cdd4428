package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
)

// TestALostQueueIsOurs: a bridge that has seen its Redis lose the queue goes on at once.
func TestALostQueueIsOurs(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		s.start(func(c *Config) { c.lapse = time.Hour })
		s.RequireStored(s.Insert(insert{ID: "before", DueMs: s.Due(soon)}))
		s.Lose()
		s.RequireStored(s.Insert(insert{ID: "after", DueMs: s.Due(soon)}))
		require.NotNil(t, s.Find("", "after"))
		require.Equal(t, 1, s.Logs.Count("outbox_adopted"))
	})
}

// TestWhoseTheRowsAre: a bridge that begins beside rows of another life.
func TestWhoseTheRowsAre(t *testing.T) {
	const gone, old = -time.Hour, -2 * time.Hour
	for name, c := range map[string]struct {
		seen, born time.Duration // from now
		there      bool          // a bridge of the other life goes on saying that it is there
		adopted    bool
	}{
		"emptied while nobody was there": {seen: gone, born: 0, adopted: true},
		"emptied, clocks apart":          {seen: 0, born: -30 * time.Second, adopted: true},
		"another one, alone":             {seen: gone, born: old},
		"another one, made now":          {seen: 0, born: 0, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
				s := newReal(t, d)
				for shard := range 2 {
					born := time.Now().Add(c.born).UnixMilli()
					require.NoError(t, s.RDB.HSet(t.Context(), storetest.Key(s.Orders, shard, "meta"), "born", born).Err())
				}
				d.Exec(t, "INSERT INTO {t}_lives (queue, life, seen_ms) VALUES (?, 'theirs', ?)", s.Orders, s.Due(c.seen))
				lapse := 50 * time.Millisecond
				if c.there {
					lapse = time.Hour // They say so every ten seconds.
				}
				r, _ := s.start(func(c *Config) { c.lapse = lapse })
				row := s.Insert(insert{ID: "row", DueMs: s.Due(soon)})
				if c.adopted {
					s.RequireStored(row)
					require.NoError(t, r.State())
					return
				}
				s.Eventually("it is told", func() bool { return s.Logs.Count("outbox_queue_away") > 0 && r.State() != nil })
				require.ErrorIs(t, r.State(), outbox.ErrOtherRedis)
				require.Equal(t, "pending", s.State(row))
				require.Nil(t, s.Find("", "row"))

				pinned, err := s.Queue.Store.Pin(t.Context())
				require.NoError(t, err)
				done, err := d.Lives().Replace(t.Context(), s.Orders, "theirs", pinned.Life()) // An operator says so.
				require.NoError(t, err)
				require.True(t, done)
				s.RequireStored(row)
				s.Eventually("it is told no more", func() bool { return r.State() == nil })
			})
		})
	}
}
