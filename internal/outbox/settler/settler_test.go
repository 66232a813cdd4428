package settler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const past, soon, far = outboxtest.Past, outboxtest.Soon, outboxtest.Far

type insert = outboxtest.Insert

// settleScene is a real Redis with a ledger, and a settler for it.
type settleScene struct {
	*outboxtest.Real
	t       *testing.T
	settler *Settler
}

func newSettling(t *testing.T, d *outboxtest.Database, adjust ...func(*Config)) *settleScene {
	t.Helper()
	s := &settleScene{Real: outboxtest.NewReal(t, d), t: t}
	config := Config{
		Databases: []Database{{Database: d.Database}},
		Queues:    []Queue{{Name: s.Orders, Store: s.Store.Rows(), Held: func() []int { return []int{0, 1} }}},
		Logger:    s.Logger(),
	}
	for _, f := range adjust {
		f(&config)
	}
	var err error
	s.settler, err = New(config)
	require.NoError(t, err)
	s.Store.WithLedger(func(shard int) { s.settler.Notify(s.Orders, shard) })
	return s
}

func (s *settleScene) flush() {
	s.t.Helper()
	require.NoError(s.t, s.settler.Flush(outboxtest.Bounded(s.t)))
}

// drain drains once, and reports whether rows are busy.
func (s *settleScene) drain() bool {
	s.t.Helper()
	p := s.settler.drain(outboxtest.Bounded(s.t), true)
	require.NoError(s.t, p.failure())
	return p.busy
}

// entries is how many entries the ledger has.
func (s *settleScene) entries() (n int) {
	s.t.Helper()
	for shard := range 2 {
		length, err := s.RDB.HLen(s.t.Context(), storetest.Key(s.Store.Name(), shard, "settled")).Result()
		require.NoError(s.t, err)
		n += int(length)
	}
	return n
}

func TestSettlerSettlesWhatIsSignalled(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		stop := s.Run(s.settler.Run)
		stored := s.Stored("stored", past)
		pending := s.Stored("pending", past, func(i *insert) { i.State = table.StatePending })
		waits := s.Stored("waits", far)
		s.Publish()
		s.Eventually("rows are settled", func() bool { return s.entries() == 0 })
		stop()
		require.Equal(t, "published", s.State(stored))
		require.Equal(t, "published", s.State(pending))
		require.Equal(t, "stored", s.State(waits))
		require.Equal(t, 2, s.Count("finished_ms > 1000000"))
	})
}

func TestSettlerFates(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		cancelled, moved := s.Stored("cancelled", far), s.Stored("moved", far)
		require.NoError(t, s.Store.Producer().Cancel(t.Context(), "cancelled", "k", store.Durability{}).Err)
		due := s.Due(far + time.Hour)
		require.NoError(t, s.Store.Producer().Reschedule(t.Context(), "moved", "k", store.When{Ms: due}, store.Durability{}).Err)
		s.flush()
		require.Equal(t, "cancelled", s.State(cancelled))
		require.Equal(t, "stored", s.State(moved))
		r, _ := s.Read(moved)
		require.Equal(t, due, r.DueMs)
		require.Zero(t, s.entries())
	})
}

func TestSettlerDiscards(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d.With(t, func(c *table.Config) { c.Discard = true }))
		published, cancelled := s.Stored("published", past), s.Stored("cancelled", far)
		s.Publish()
		require.NoError(t, s.Store.Producer().Cancel(t.Context(), "cancelled", "k", store.Durability{}).Err)
		s.flush()
		require.Equal(t, "gone", s.State(published))
		require.Equal(t, "cancelled", s.State(cancelled), "it tells what became of it")
	})
}

// TestSettlerLeavesAQueue: what the ledgers of a removed queue have stays there, and is settled when it is back. An
// acknowledgement that came too late for Redis is settled all the same.
func TestSettlerLeavesAQueue(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		published, late := s.Stored("published", past), s.Stored("late", far)
		r, _ := s.Read(late)
		s.Publish() // It is signalled.
		s.settler.Acknowledged(s.Orders, []store.RowFate{{Token: r.Token, ID: "late", Key: "k"}})
		s.settler.Remove(s.Orders)
		s.settler.Notify(s.Orders, 0)
		s.settler.mu.Lock()
		s.settler.backlog.notify(ledgerRef{s.Orders, 1}) // as a pass does that was under way
		s.settler.mu.Unlock()
		s.flush()
		require.Equal(t, 1, s.entries())
		require.Equal(t, "stored", s.State(published))
		require.Equal(t, "published", s.State(late))
		s.settler.Add(s.settler.config.Queues[0])
		s.flush()
		require.Zero(t, s.entries())
		require.Equal(t, "published", s.State(published))
	})
}

func TestSettlerForgetsWhatNobodyKnows(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		deleted := s.Stored("deleted", past)
		d.Exec(t, "DELETE FROM {t} WHERE id = ?", deleted)
		other := s.Stored("other", past, func(i *insert) { i.Token = "~token-in-redis-" })
		d.Exec(t, "UPDATE {t} SET token = ? WHERE id = ?", "~token-in-table-", other)
		s.Publish()
		require.NoError(t, s.RDB.HSet(t.Context(), storetest.Key(s.Store.Name(), 0, "settled"), "~no-text-at-all-", "p\xff\xfe").Err())
		require.Equal(t, 3, s.entries())
		s.flush()
		require.Zero(t, s.entries())
		require.Equal(t, "stored", s.State(other), "its token is another one")
	})
}

func TestSettlerWaitsForRowsInUse(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		locked, operated, free := s.Stored("locked", past), s.Stored("operated", past), s.Stored("free", past)
		op := s.Insert(insert{ID: "operated", Key: "k", Verb: table.VerbCancel})
		s.Publish()
		tx, commit := s.Begin()
		d.ExecIn(t, tx, "SELECT id FROM {t} WHERE id = ? FOR UPDATE", locked)

		require.True(t, s.drain())
		require.Equal(t, "published", s.State(free))
		require.Equal(t, "stored", s.State(locked))
		require.Equal(t, "stored", s.State(operated), "the relay decides about its operation first")
		require.Equal(t, 2, s.entries())

		commit()
		require.True(t, s.drain())
		require.Equal(t, "published", s.State(locked))
		require.Equal(t, 1, s.entries())

		d.Exec(t, "UPDATE {t} SET status = 4 WHERE id = ?", op)
		require.False(t, s.drain())
		require.Equal(t, "published", s.State(operated))
		require.Zero(t, s.entries())
	})
}

// A relay that died after it had moved the message in Redis left a row that does
// not know its token in force yet.
func TestSettlerKeepsWhatAnOperationWillKnow(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		head := s.Stored("moved", far)
		before, _ := s.Read(head)
		op := s.Insert(insert{ID: "moved", Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(past)})
		token, _ := s.Read(op)
		require.Equal(t, store.Done, s.Store.Rows().RescheduleRow(t.Context(), store.Operation{ID: "moved", Key: "k", Token: token.Token, Target: before.Token}, token.DueAt()).Code)
		s.Publish()
		require.True(t, s.drain())
		require.Equal(t, 1, s.entries())
		relaying, err := relay.New(relay.Config{Database: d.Database, Queues: []outbox.Queue{s.Queue}, Clock: s.Store.Clock, Poll: 10 * time.Millisecond})
		require.NoError(t, err)
		s.Run(relaying.Run)
		s.Drained()
		s.flush()
		require.Equal(t, "published", s.State(head))
	})
}

func TestSettlerWithADatabaseAway(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		away, err := table.Open(table.Config{Dialect: schema.Postgres, Source: sqldb.Plain("postgres://nobody@127.0.0.1:1/none?sslmode=disable")})
		require.NoError(t, err)
		t.Cleanup(func() { _ = away.Close() })
		s := newSettling(t, d, func(c *Config) {
			c.Databases = append([]Database{{Database: away}}, c.Databases...)
		})
		here := s.Stored("here", past)
		there := s.Stored("there", past)
		d.Exec(t, "DELETE FROM {t} WHERE id = ?", there)
		s.Publish()
		s.settler.Acknowledged(s.Orders, []store.RowFate{{Token: "~nobody-knows-it", ID: "stale", Key: "k"}})
		for range 3 {
			require.Error(t, s.settler.drain(outboxtest.Bounded(t), true).failure())
		}
		require.Equal(t, "stored", s.State(here), "a pass ends early while a database is away")
		require.Equal(t, 2, s.entries())
		require.Len(t, s.settler.backlog.stale, 1)
		require.Equal(t, 1, s.Logs.Count("outbox_settle_database_away"))
		require.Error(t, s.settler.Flush(outboxtest.Bounded(t)))
	})
}

func TestSettlerOffersToAllDatabases(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		other := d.With(t, func(c *table.Config) { c.Table = "other" })
		other.MakeTable(t)
		s := newSettling(t, d, func(c *Config) {
			c.Databases = []Database{{Database: other.Database}, {Database: d.Database}}
		})
		number := s.Stored("one", past)
		s.Publish()
		s.flush()
		require.Equal(t, "published", s.State(number))
	})
}

func TestSettlerTakesLateAcknowledgements(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		late, waits := s.Stored("late", far), s.Stored("waits", far)
		r, _ := s.Read(late)
		s.settler.Acknowledged(s.Orders, []store.RowFate{
			{Token: r.Token, ID: "late", Key: "k"}, {Token: "not-of-an-outbox", ID: "waits", Key: "k"},
		})
		require.Len(t, s.settler.backlog.stale, 1)
		s.flush()
		require.Equal(t, "published", s.State(late))
		require.Equal(t, "stored", s.State(waits))
		require.Empty(t, s.settler.backlog.stale)

		many := make([]store.RowFate, staleLimit+5)
		for i := range many {
			many[i] = store.RowFate{Token: "~nobody-knows-it", ID: "x"}
		}
		s.settler.Acknowledged(s.Orders, many)
		require.Len(t, s.settler.backlog.stale, staleLimit)
		require.Equal(t, 5, s.settler.backlog.dropped)
	})
}

func TestSettlerManyEntries(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newSettling(t, d)
		s.StoreMany(3500, past)
		for s.entries() < 3500 {
			s.Publish()
		}
		started := time.Now()
		s.flush()
		t.Log("settled in", time.Since(started))
		require.Zero(t, s.entries())
		require.Equal(t, 3500, s.Count("status = 2"))
	})
}
