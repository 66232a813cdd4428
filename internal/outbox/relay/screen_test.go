package relay

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestScreen: a row is refused while it is far beyond the horizon, counted and said as
// one inside of it, and Redis is not needed for that.
func TestScreen(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		bad := s.Insert(insert{ID: "bad", DueMs: s.Due(far), Topic: "a b"})
		mail := s.Insert(insert{Queue: "mails", ID: "mail", DueMs: s.Due(far), Topic: "a..b"})
		left := []int64{
			s.Insert(insert{ID: "good", DueMs: s.Due(far), Topic: "a.b"}),
			s.Insert(insert{ID: "near", DueMs: s.Due(soon), Topic: "a b"}),
			s.Insert(insert{Queue: "elsewhere", ID: "foreign", DueMs: s.Due(far), Topic: "a b"}),
		}
		var mine atomic.Bool
		var asked atomic.Int64
		s.start(func(c *Config) {
			c.screen = time.Millisecond
			c.Clock = func(context.Context) (time.Time, error) { return time.Time{}, errTest }
			c.Mine = func() bool { asked.Add(1); return mine.Load() }
		})
		s.Eventually("another instance has them", func() bool { return asked.Load() > 2*screenBehind })
		require.Equal(t, "pending", s.State(bad))
		mine.Store(true)
		require.Equal(t, `topic "a b": a NATS subject has no space, control character, * or >`, s.RequireState(bad, table.StateRefused))
		s.RequireState(mail, table.StateRefused)
		later := s.Insert(insert{ID: "later", DueMs: s.Due(far), Topic: "$a"})
		s.RequireState(later, table.StateRefused)
		for _, number := range left {
			require.Equal(t, "pending", s.State(number))
		}
		s.Eventually("they are counted", func() bool {
			return s.observer.count("orders schedule refused") == 2 && s.observer.count("mails schedule refused") == 1
		})
		s.Eventually("it is said", func() bool { return s.Logs.Count("outbox_refused") == 1 })
		require.Zero(t, s.Logs.Count("outbox_queue_back"))
	})
}

// TestScreenGoesThroughAll: a row is found whatever is before it, and also where its
// transaction commits after those with higher numbers.
func TestScreenGoesThroughAll(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		screen := &screen{Relay: s.relay()}
		steps := func(n int) {
			for range n {
				require.NoError(t, screen.step(t.Context()))
			}
		}
		wrong := func(id string) insert { return insert{ID: id, DueMs: s.Due(far), Topic: "a b"} }
		s.InsertMany(screenRows, far)
		behind := s.Insert(wrong("behind"))
		steps(screenBehind + 1)
		require.Equal(t, "pending", s.State(behind), "one step has its bound")
		steps(1)
		s.RequireState(behind, table.StateRefused)

		tx, commit := s.Begin()
		slow := s.InsertInto(tx, wrong("slow"))
		last := s.Insert(wrong("last"))
		steps(screenBehind)
		require.Equal(t, behind, screen.after)
		commit()
		steps(1)
		s.RequireState(slow, table.StateRefused)
		s.RequireState(last, table.StateRefused)

		operated := s.Insert(wrong("operated"))
		s.Insert(insert{ID: "operated", Verb: table.VerbCancel})
		steps(screenBehind + 1)
		require.Equal(t, "pending", s.State(operated), "the lanes have it")
	})
}

// TestScreenRepeats what it could not do.
func TestScreenRepeats(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		screen := &screen{Relay: s.relay()}
		bad := s.Insert(insert{ID: "bad", DueMs: s.Due(far), Topic: "a b"})
		screen.seen = make([]int64, 0, screenBehind+1)
		for range screenBehind {
			screen.seen = append(screen.seen, bad)
		}
		d.Exec(t, "ALTER TABLE {t} RENAME COLUMN reason TO because") // It reads, and cannot write.
		require.Error(t, screen.step(t.Context()))
		require.Zero(t, screen.after)
		d.Exec(t, "ALTER TABLE {t} RENAME COLUMN because TO reason")
		require.NoError(t, screen.step(t.Context()))
		s.RequireState(bad, table.StateRefused)
	})
}

// TestScreenDue: no horizon ever reaches a due time after the year 9999, as one in
// microseconds is, so it is refused if the others wait.
func TestScreenDue(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		micros := s.Insert(insert{ID: "micros", DueMs: time.Now().UnixMicro(), Topic: "a.b"})
		endless := s.Insert(insert{ID: "endless", DueMs: math.MaxInt64, Topic: "a.b"})
		last := s.Insert(insert{ID: "last", DueMs: table.MaxDueMs - 1, Topic: "a.b"})
		s.start(func(c *Config) { c.screen = time.Millisecond })
		for _, number := range []int64{micros, endless} {
			require.Equal(t, "due_ms is outside of 1970 to 9999", s.RequireState(number, table.StateRefused))
		}
		require.Equal(t, "pending", s.State(last))
	})
}
