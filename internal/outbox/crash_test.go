package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// kill ends all sessions that may have a transaction, and returns when they are
// gone. MariaDB does not tell at once that a session waits for its client.
func (s *scene) kill() {
	ctx := context.Background()
	list, kill := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()", "KILL %d"
	if s.db.dialect.name == schema.Postgres {
		list = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
		kill = "SELECT pg_terminate_backend(%d)"
	}
	sessions := func() (ids []int64, err error) {
		err = s.db.query(list).each(ctx, s.db.db, func(rows *sql.Rows) error {
			ids = append(ids, 0)
			return rows.Scan(&ids[len(ids)-1])
		})
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
			_, _ = s.db.db.ExecContext(ctx, fmt.Sprintf(kill, id)) // It may have gone by itself.
		}
	}
	s.t.Error("sessions do not end")
}

// saboteur runs something once after a call to Redis has been answered, before
// the transaction is committed.
type saboteur struct {
	Store
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

func (s *saboteur) Pin(context.Context) (Store, error) { return s, nil }

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
	onBoth(t, func(t *testing.T, d *Database) {
		for name, published := range map[string]bool{"waits": false, "published meanwhile": true} {
			t.Run(name, func(t *testing.T) {
				s := newReal(t, d)
				crash := &saboteur{Store: NewStore(s.store.Rows()), after: func() {
					if published {
						s.ack(s.take())
					}
					s.kill()
				}}
				s.config.Queues[0].Store = crash
				a := s.insert(insert{id: "a", dueMs: s.due(past)})
				s.start()
				if published {
					s.requireState(a, statePublished)
				} else {
					s.requireState(a, stateStored)
				}
				require.Equal(t, int64(1), s.scheduled(), "created once")
				require.Nil(t, crash.after)
				due := s.due(soon)
				b := s.insert(insert{id: "b", dueMs: s.due(2 * soon)})
				s.requireState(b, stateStored)
				crash.mu.Lock()
				crash.after = s.kill
				crash.mu.Unlock()
				move := s.insert(insert{id: "b", verb: verbReschedule, dueMs: due})
				s.requireState(move, stateStored)
				row, _ := s.read(b)
				require.Equal(t, due, row.dueMs)
				crash.mu.Lock()
				crash.after = s.kill
				crash.mu.Unlock()
				s.requireState(s.insert(insert{id: "b", verb: verbCancel}), stateCancelled)
				s.requireState(b, stateCancelled)
				require.Equal(t, int64(2), s.scheduled())
				s.sound()
			})
		}
	})
}

// scheduled is how many messages Redis has ever created.
func (s *realScene) scheduled() (n int64) {
	s.t.Helper()
	for shard := range 2 {
		count, err := s.rdb.HGet(s.t.Context(), storetest.Key(s.store.Name(), shard, "meta"), "scheduled").Int64()
		if err == nil {
			n += count
		}
	}
	return n
}

// TestManyLanes: relays and lanes share the work, and each message is stored once.
func TestManyLanes(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		const rows = 3000
		tx, commit := s.begin()
		for i := range rows {
			s.insertInto(tx, insert{key: fmt.Sprint("k", i%7), id: fmt.Sprint(i), dueMs: s.due(soon)})
		}
		commit()
		lanes := func(c *Config) { c.Lanes = 3 }
		s.start(lanes)
		s.start(lanes)
		s.eventually("all are stored", func() bool { return s.count("status = 0") == 0 })
		s.redis.with(func() {
			require.Len(t, s.redis.created, rows)
			for it, n := range s.redis.created {
				require.Equal(t, 1, n, it)
			}
			require.Less(t, s.redis.puts, rows/10, "in batches")
		})
		require.Zero(t, s.logs.count("outbox_database_away"), "no deadlock: %s", s.logs)
	})
}

// TestEverythingAtOnce has producers schedule, push, cancel and reschedule the
// same few ids, while two relays with three lanes each work on them and messages
// are published. At the end table and Redis must agree.
func TestEverythingAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
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
	s.drained()
	s.eventually("heads are stored", func() bool { return s.count(fmt.Sprintf("status = 0 AND load_ms < %d", s.due(time.Hour))) == 0 })
	stopA()
	stopB()
	require.Zero(s.t, s.logs.count("outbox_panic"))
	require.Zero(s.t, s.logs.count("outbox_database_away"), "%s", s.logs)
	s.sound()
	s.agree()
}

// produce does things to a few ids, each in a transaction of its own.
func (s *realScene) produce(times int) {
	for range times {
		id, due := fmt.Sprint("id", rand.IntN(12)), s.due(time.Duration(rand.IntN(180))*time.Minute)
		i := insert{id: id, dueMs: due}
		switch rand.IntN(5) {
		case 0:
			i.verb, i.dueMs = verbCancel, 0
		case 1, 2:
			i.verb = verbReschedule
		case 3:
			i.tried = true
		}
		number, err := s.tryInsert(s.t.Context(), s.db.db, i)
		if err != nil {
			continue // A duplicate.
		}
		if i.tried {
			if r, _ := s.read(number); r != nil {
				m := &message.Message{ID: id, Topic: "topic"}
				s.store.Rows().Put(s.t.Context(), []store.Row{{Token: r.token, Message: m, DueAt: r.dueAt()}})
			}
		}
	}
}

// agree compares the rows with Redis. No message was published.
func (s *realScene) agree() {
	s.t.Helper()
	for n := range 12 {
		id := fmt.Sprint("id", n)
		found := s.find("", id)
		q := s.db.query("").add("SELECT "+columns+" FROM {t} WHERE message_id = ? AND queue = ? AND op = 0 AND status IN (0, 1)", id, s.orders)
		rows, err := s.db.rows(s.t.Context(), s.db.db, q)
		require.NoError(s.t, err)
		switch {
		case len(rows) == 1 && rows[0].state == stateStored:
			require.NotNil(s.t, found, id)
			require.Equal(s.t, rows[0].token, found.Token, id)
			require.Equal(s.t, rows[0].dueMs, found.DueAt.UnixMilli(), id)
		case len(rows) == 1: // Beyond the horizon, but a producer may have pushed it.
			require.True(s.t, found == nil || found.Token == rows[0].token, id)
		default:
			require.Nil(s.t, found, "%s is in Redis, and no row says so", id)
		}
	}
	for what, where := range map[string]string{
		"nothing was published":                   "(status = 2 OR status = 4 AND reason = '')",
		"nothing is unknown that the table knows": "status = 5 AND target IS NOT NULL",
	} {
		require.Zero(s.t, s.count(where+" AND queue = '"+s.orders+"'"), what)
	}
}

// TestNobodyWaits: while Redis hangs, and relays hold their locks, producers'
// transactions on the same ids finish at once.
func TestNobodyWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		proxy := testenv.NewProxy(t, connect(t, testenv.Redis(t)).Options().Addr)
		s := newRealOn(t, d, connect(t, "redis://"+proxy.Addr()))
		heads := []string{"pending", "stored", "operated"}
		_, stop := s.start()
		s.requireState(s.insert(insert{id: "stored", dueMs: s.due(soon)}), stateStored)
		s.requireState(s.insert(insert{id: "operated", dueMs: s.due(soon)}), stateStored)
		stop()
		s.insert(insert{id: "pending", dueMs: s.due(past)})
		s.insert(insert{id: "operated", verb: verbReschedule, dueMs: s.due(2 * soon)})
		entered := make(chan struct{})
		s.config.Queues[0].Store = &announcer{Store: NewStore(s.store.Rows()), first: sync.OnceFunc(func() {
			proxy.Blackhole(true)
			close(entered)
		})}
		s.start()
		<-entered // A lane holds its locks, and no call reaches Redis.
		for _, id := range heads {
			for _, i := range []insert{
				{id: id, dueMs: s.due(soon)}, {id: id, verb: verbCancel}, {id: id, verb: verbReschedule, dueMs: s.due(soon)},
			} {
				began := time.Now()
				_, err := s.tryInsert(bounded(t), d.db, i)
				if i.verb == verbSchedule {
					require.Error(t, err, "a duplicate")
				} else {
					require.NoError(t, err)
				}
				require.Less(t, time.Since(began), 2*time.Second, "%s %s", i.verb, id)
			}
		}
		require.Equal(t, 1, s.count("id > 0 AND message_id = 'pending' AND op = 0 AND status = 0"), "the relay is still stuck")
		proxy.Blackhole(false)
	})
}

// announcer calls first before the first call.
type announcer struct {
	Store
	first func()
}

func (a *announcer) Pin(context.Context) (Store, error) { return a, nil }

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
			s := newScene(t, openTest(t, dialect, server.URL()))
			s.start()
			s.requireStored(s.insert(insert{id: "a", dueMs: 1}))
			far := s.insert(insert{id: "far", dueMs: s.due(far)})
			server.Kill()
			s.eventually("it is said", func() bool { return s.logs.count("outbox_database_away") == 1 })
			server.Start()
			s.eventually("it is back", func() bool { return s.logs.count("outbox_database_back") == 1 })
			s.requireStored(s.insert(insert{id: "b", dueMs: 1}))
			r, _ := s.read(far)
			require.Equal(t, statePending, r.state)
			require.Equal(t, 1, s.logs.count("outbox_database_away"))
		})
	}
}

// TestRedisAway: the relay says once that Redis is away, takes no locks, and goes
// on when it is back.
func TestRedisAway(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		s.redis.with(func() { s.redis.err = store.ErrUnavailable })
		s.start()
		a := s.insert(insert{id: "a", dueMs: s.due(past)})
		s.eventually("it is said", func() bool { return s.logs.count("outbox_redis_away") == 1 })
		s.redis.with(func() { s.redis.err = nil })
		s.requireStored(a)
		s.eventually("it is back", func() bool { return s.logs.count("outbox_redis_back") == 1 })
		require.Equal(t, 1, s.logs.count("outbox_redis_away"))
		require.False(t, s.live("a").marked)
	})
}

// TestPanic: a panic costs neither the relay nor the row.
func TestPanic(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		var once sync.Once
		s.redis.with(func() {
			s.redis.fail = func(identity) (err error) {
				once.Do(func() { err = errTest })
				if err != nil {
					panic(err)
				}
				return nil
			}
		})
		s.start()
		s.requireStored(s.insert(insert{id: "a", dueMs: 1}))
		s.eventually("it was said", func() bool { return s.logs.count("outbox_panic") == 1 })
	})
}

// TestStandby: connections to a server that takes no writes are dropped, so that the
// relay goes on soon after the name leads to one that does.
func TestStandby(t *testing.T) {
	t.Parallel()
	d := openTest(t, schema.Postgres, testenv.Postgres(t))
	s := newScene(t, d)
	var name string
	err := d.query("SELECT current_database()").each(t.Context(), d.db, func(rows *sql.Rows) error { return rows.Scan(&name) })
	require.NoError(t, err)
	setReadOnly := func(how string) {
		conn, err := d.db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		for _, statement := range []string{"BEGIN READ WRITE", `ALTER DATABASE "` + name + `" ` + how, "COMMIT"} {
			_, err = conn.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	row := s.insert(insert{id: "a", dueMs: s.due(past)})
	setReadOnly("SET default_transaction_read_only = on") // For sessions that begin from now on.
	d.db.SetMaxIdleConns(-1)
	d.db.SetMaxIdleConns(d.idle)
	s.start()
	s.eventually("it is said", func() bool { return s.logs.count("outbox_database_away") == 1 })
	setReadOnly("RESET default_transaction_read_only")
	s.requireStored(row)
}
