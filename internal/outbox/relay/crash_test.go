package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// kill ends all sessions that may have a transaction, and returns when they are
// gone. MariaDB does not tell at once that a session waits for its client.
func (s *realScene) kill() {
	ctx := context.Background()
	list, kill := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()", "KILL %d"
	if s.DB.IsPostgres() {
		list = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
		kill = "SELECT pg_terminate_backend(%d)"
	}
	sessions := func() (ids []int64, err error) {
		var id int64
		err = s.DB.Query(ctx, s.DB.SQL, []any{&id}, func() { ids = append(ids, id) }, list)
		return ids, err
	}
	victims, err := sessions()
	for range 1000 {
		if err != nil { // The pool may still have one that was killed before.
			victims, err = sessions()
			continue
		}
		left, errLeft := sessions()
		victims = slices.DeleteFunc(victims, func(id int64) bool { return errLeft == nil && !slices.Contains(left, id) })
		if len(victims) == 0 {
			return
		}
		for _, id := range victims {
			_, _ = s.DB.SQL.ExecContext(ctx, fmt.Sprintf(kill, id)) // It may have gone by itself.
		}
	}
	s.t.Error("sessions do not end")
}

// saboteur runs something once after a call to Redis has been answered, before
// the transaction is committed.
type saboteur struct {
	outbox.Store
	mu    sync.Mutex
	after func()
}

func (s *saboteur) strike() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after != nil {
		s.after()
		s.after = nil
	}
}

func (s *saboteur) Pin(context.Context) (outbox.Store, error) { return s, nil }

func (s *saboteur) Put(ctx context.Context, rows []store.Row) []store.Answer {
	defer s.strike()
	return s.Store.Put(ctx, rows)
}

func (s *saboteur) CancelRow(ctx context.Context, o store.Operation) store.Answer {
	defer s.strike()
	return s.Store.CancelRow(ctx, o)
}

func (s *saboteur) RescheduleRow(ctx context.Context, o store.Operation, due time.Time) store.Answer {
	defer s.strike()
	return s.Store.RescheduleRow(ctx, o, due)
}

// TestCrash: a transaction that dies after Redis was written is repeated,
// and finds what it has done.
func TestCrash(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		for name, published := range map[string]bool{"waits": false, "published meanwhile": true} {
			t.Run(name, func(t *testing.T) {
				s := newReal(t, d)
				crash := &saboteur{Store: outbox.NewStore(s.Store.Rows()), after: func() {
					if published {
						s.Ack(s.Take())
					}
					s.kill()
				}}
				s.config.Queues[0].Store = crash
				a := s.Insert(insert{ID: "a", DueMs: s.Due(past)})
				s.start()
				if published {
					s.RequireState(a, table.StatePublished)
				} else {
					s.RequireState(a, table.StateStored)
				}
				require.Equal(t, int64(1), s.scheduled(), "created once")
				require.Nil(t, crash.after)
				due := s.Due(soon)
				b := s.Insert(insert{ID: "b", DueMs: s.Due(2 * soon)})
				s.RequireState(b, table.StateStored)
				crash.mu.Lock()
				crash.after = s.kill
				crash.mu.Unlock()
				move := s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: due})
				s.RequireState(move, table.StateStored)
				row, _ := s.Read(b)
				require.Equal(t, due, row.DueMs)
				crash.mu.Lock()
				crash.after = s.kill
				crash.mu.Unlock()
				s.RequireState(s.Insert(insert{ID: "b", Verb: table.VerbCancel}), table.StateCancelled)
				s.RequireState(b, table.StateCancelled)
				require.Equal(t, int64(2), s.scheduled())
				s.Sound()
			})
		}
	})
}

// scheduled is how many messages Redis has ever created.
func (s *realScene) scheduled() (n int64) {
	s.t.Helper()
	for shard := range 2 {
		count, err := s.RDB.HGet(s.t.Context(), storetest.Key(s.Store.Name(), shard, "meta"), "scheduled").Int64()
		if err == nil {
			n += count
		}
	}
	return n
}

// TestManyLanes: relays and lanes share the work, and each message is stored once.
func TestManyLanes(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		const rows = 3000
		tx, commit := s.Begin()
		for i := range rows {
			s.InsertInto(tx, insert{Key: fmt.Sprint("k", i%7), ID: fmt.Sprint(i), DueMs: s.Due(soon)})
		}
		commit()
		lanes := func(c *Config) { c.Lanes = 3 }
		s.start(lanes)
		s.start(lanes)
		s.Eventually("all are stored", func() bool { return s.Count("status = 0") == 0 })
		s.redis.with(func() {
			require.Len(t, s.redis.created, rows)
			for it, n := range s.redis.created {
				require.Equal(t, 1, n, it)
			}
			require.Less(t, s.redis.puts, rows/10, "in batches")
		})
		require.Zero(t, s.Logs.Count("outbox_deadlock"), s.Logs)
		requireNotRefused(t, s.Logs)
	})
}

// TestEverythingAtOnce has producers schedule, push, cancel and reschedule the
// same few ids, while two relays with three lanes each work on them and messages
// are published. At the end table and Redis must agree.
func TestEverythingAtOnce(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		everythingAtOnce(newReal(t, d))
	})
}

func everythingAtOnce(s *realScene) {
	set := func(c *Config) { c.Lanes = 3 }
	_, stopA := s.start(set)
	_, stopB := s.start(set)
	var producers sync.WaitGroup
	for range 4 {
		producers.Go(func() { s.produce(150) })
	}
	producers.Wait()
	s.Drained()
	s.Eventually("heads are stored", func() bool { return s.Count(fmt.Sprintf("status = 0 AND load_ms < %d", s.Due(time.Hour))) == 0 })
	stopA()
	stopB()
	require.Zero(s.t, s.Logs.Count("outbox_panic"))
	requireNotRefused(s.t, s.Logs)
	s.Sound()
	s.agree()
}

// produce does things to a few ids, each in a transaction of its own.
func (s *realScene) produce(times int) {
	for range times {
		id, due := fmt.Sprint("id", rand.IntN(12)), s.Due(time.Duration(rand.IntN(180))*time.Minute)
		i := insert{ID: id, DueMs: due}
		switch rand.IntN(5) {
		case 0:
			i.Verb, i.DueMs = table.VerbCancel, 0
		case 1, 2:
			i.Verb = table.VerbReschedule
		case 3:
			i.Tried = true
		}
		number, err := s.TryInsert(s.t.Context(), s.DB.SQL, i)
		if err != nil {
			continue // A duplicate.
		}
		if i.Tried {
			if r, _ := s.Read(number); r != nil {
				m := &message.Message{ID: id, Topic: "topic"}
				s.Store.Rows().Put(s.t.Context(), []store.Row{{Token: r.Token, Message: m, DueAt: r.DueAt()}})
			}
		}
	}
}

// agree compares the rows with Redis. No message was published.
func (s *realScene) agree() {
	s.t.Helper()
	for n := range 12 {
		id := fmt.Sprint("id", n)
		found := s.Find("", id)
		var numbers []int64
		var number int64
		require.NoError(s.t, s.DB.Query(s.t.Context(), s.DB.SQL, []any{&number}, func() { numbers = append(numbers, number) },
			"SELECT id FROM {t} WHERE message_id = ? AND queue = ? AND op = 0 AND status IN (0, 1)", id, s.Orders))
		require.LessOrEqual(s.t, len(numbers), 1, id)
		if len(numbers) == 0 {
			require.Nil(s.t, found, "%s is in Redis, and no row says so", id)
			continue
		}
		row, _ := s.Read(numbers[0])
		if row.State == table.StateStored {
			require.NotNil(s.t, found, id)
			require.Equal(s.t, row.Token, found.Token, id)
			require.Equal(s.t, row.DueMs, found.DueAt.UnixMilli(), id)
		} else { // Beyond the horizon, but a producer may have pushed it.
			require.True(s.t, found == nil || found.Token == row.Token, id)
		}
	}
	for what, where := range map[string]string{
		"nothing was published":                   "(status = 2 OR status = 4 AND reason = '')",
		"nothing is unknown that the table knows": "status = 5 AND target IS NOT NULL",
	} {
		require.Zero(s.t, s.Count(where+" AND queue = '"+s.Orders+"'"), what)
	}
}

// TestNobodyWaits: while Redis hangs, and relays hold their locks, producers'
// transactions on the same ids finish at once.
func TestNobodyWaits(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		proxy := testenv.NewProxy(t, outboxtest.Connect(t, testenv.Redis(t)).Options().Addr)
		s := newRealOn(t, d, outboxtest.Connect(t, "redis://"+proxy.Addr()))
		heads := []string{"pending", "stored", "operated"}
		_, stop := s.start()
		s.RequireState(s.Insert(insert{ID: "stored", DueMs: s.Due(soon)}), table.StateStored)
		s.RequireState(s.Insert(insert{ID: "operated", DueMs: s.Due(soon)}), table.StateStored)
		stop()
		s.Insert(insert{ID: "pending", DueMs: s.Due(past)})
		s.Insert(insert{ID: "operated", Verb: table.VerbReschedule, DueMs: s.Due(2 * soon)})
		entered := make(chan struct{})
		s.config.Queues[0].Store = &announcer{Store: outbox.NewStore(s.Store.Rows()), first: sync.OnceFunc(func() {
			proxy.Blackhole(true)
			close(entered)
		})}
		s.start()
		<-entered // A lane holds its locks, and no call reaches Redis.
		for _, id := range heads {
			for _, i := range []insert{
				{ID: id, DueMs: s.Due(soon)}, {ID: id, Verb: table.VerbCancel}, {ID: id, Verb: table.VerbReschedule, DueMs: s.Due(soon)},
			} {
				began := time.Now()
				_, err := s.TryInsert(outboxtest.Bounded(t), d.SQL, i)
				if i.Verb == table.VerbSchedule {
					require.Error(t, err, "a duplicate")
				} else {
					require.NoError(t, err)
				}
				require.Less(t, time.Since(began), 2*time.Second, "%s %s", i.Verb, id)
			}
		}
		require.Equal(t, 1, s.Count("id > 0 AND message_id = 'pending' AND op = 0 AND status = 0"), "the relay is still stuck")
		proxy.Blackhole(false)
	})
}

// announcer calls first before the first call.
type announcer struct {
	outbox.Store
	first func()
}

func (a *announcer) Pin(ctx context.Context) (outbox.Store, error) {
	pinned, err := a.Store.Pin(ctx)
	return &announcer{pinned, a.first}, err
}

func (a *announcer) Put(ctx context.Context, rows []store.Row) []store.Answer {
	a.first()
	return a.Store.Put(ctx, rows)
}

func (a *announcer) RescheduleRow(ctx context.Context, o store.Operation, due time.Time) store.Answer {
	a.first()
	return a.Store.RescheduleRow(ctx, o, due)
}

// TestDatabaseRestart: the relay says once that the database is away, and goes on
// when it is back.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	for dialect, start := range map[schema.Dialect]func(testing.TB, string) *testenv.Server{
		schema.Postgres: testenv.StartPostgres, schema.MySQL: testenv.StartMariaDB,
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			server := start(t, "")
			s := newScene(t, outboxtest.Open(t, dialect, server.URL()))
			s.start()
			s.RequireStored(s.Insert(insert{ID: "a", DueMs: 1}))
			far := s.Insert(insert{ID: "far", DueMs: s.Due(far)})
			server.Kill()
			s.Eventually("it is said", func() bool { return s.Logs.Count("outbox_database_away") == 1 })
			server.Start()
			s.Eventually("it is back", func() bool { return s.Logs.Count("outbox_database_back") == 1 })
			var b int64
			s.Eventually("a producer has no connection left from before", func() bool {
				var err error
				b, err = s.TryInsert(t.Context(), s.DB.SQL, insert{ID: "b", DueMs: 1})
				return err == nil
			})
			s.RequireStored(b)
			r, _, err := s.TryRead(far)
			require.NoError(t, err)
			require.Equal(t, table.StatePending, r.State)
			require.Equal(t, 1, s.Logs.Count("outbox_database_away"))
		})
	}
}

// TestRedisAway: the relay says once that Redis is away, takes no locks, and goes
// on when it is back.
func TestRedisAway(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.redis.with(func() { s.redis.err = store.ErrUnavailable })
		s.start()
		a := s.Insert(insert{ID: "a", DueMs: s.Due(past)})
		s.Eventually("it is said", func() bool { return s.Logs.Count("outbox_redis_away") == 1 })
		s.redis.with(func() { s.redis.err = nil })
		s.RequireStored(a)
		s.Eventually("it is back", func() bool { return s.Logs.Count("outbox_redis_back") == 1 })
		require.Equal(t, 1, s.Logs.Count("outbox_redis_away"))
		require.False(t, s.live("a").marked)
	})
}

// TestPanic: a panic costs neither the relay nor the row.
func TestPanic(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		var once sync.Once
		s.redis.with(func() {
			s.redis.fail = func(table.Identity) (err error) {
				once.Do(func() { err = errTest })
				if err != nil {
					panic(err)
				}
				return nil
			}
		})
		s.start()
		s.RequireStored(s.Insert(insert{ID: "a", DueMs: 1}))
		s.Eventually("it was said", func() bool { return s.Logs.Count("outbox_panic") == 1 })
	})
}

// TestStandby: connections to a server that takes no writes are dropped, so that the
// relay goes on soon after the name leads to one that does.
func TestStandby(t *testing.T) {
	t.Parallel()
	d := outboxtest.Open(t, schema.Postgres, testenv.Postgres(t))
	s := newScene(t, d)
	var name string
	require.NoError(t, d.Query(t.Context(), d.SQL, []any{&name}, nil, "SELECT current_database()"))
	row := s.Insert(insert{ID: "a", DueMs: s.Due(past)})
	conn, err := d.SQL.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	setReadOnly := func(how string) {
		for _, statement := range []string{"BEGIN READ WRITE", `ALTER DATABASE "` + name + `" ` + how, "COMMIT"} {
			_, err := conn.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	setReadOnly("SET default_transaction_read_only = on") // For sessions that begin from now on.
	s.start()
	s.Eventually("it is said", func() bool { return s.Logs.Count("outbox_database_away") == 1 })
	setReadOnly("RESET default_transaction_read_only")
	s.RequireStored(row)
}
