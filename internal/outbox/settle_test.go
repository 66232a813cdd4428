package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// settling is a real Redis with a ledger, and a settler for it.
type settling struct {
	*realScene
	settler *Settler
}

func newSettling(t *testing.T, d *Database, adjust ...func(*SettlerConfig)) *settling {
	t.Helper()
	s := &settling{realScene: newReal(t, d)}
	config := SettlerConfig{
		Databases: []Settled{{Database: d}},
		Queues:    []LedgerQueue{{Name: s.orders, Store: s.store.Rows(), Held: func() []int { return []int{0, 1} }}},
		Logger:    slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range adjust {
		f(&config)
	}
	var err error
	s.settler, err = NewSettler(config)
	require.NoError(t, err)
	s.store.WithLedger(func(shard int) { s.settler.Notify(s.orders, shard) })
	return s
}

// stored is a row whose message is in Redis.
func (s *settling) stored(id string, due time.Duration, adjust ...func(*insert)) int64 {
	s.t.Helper()
	i := insert{id: id, key: "k", dueMs: s.due(due), state: stateStored, body: "b"}
	for _, f := range adjust {
		f(&i)
	}
	number := s.insert(i)
	require.Equal(s.t, store.Created, s.put(number).Code)
	return number
}

func (s *settling) publish() {
	s.t.Helper()
	s.ack(s.take())
}

func (s *settling) flush() {
	s.t.Helper()
	require.NoError(s.t, s.settler.Flush(bounded(s.t)))
}

// drain drains once, and reports whether rows are busy.
func (s *settling) drain() bool {
	s.t.Helper()
	busy, err := s.settler.drain(bounded(s.t), true)
	require.NoError(s.t, err)
	return busy
}

// entries is how many entries the ledger has.
func (s *settling) entries() (n int) {
	s.t.Helper()
	for shard := range 2 {
		length, err := s.rdb.HLen(s.t.Context(), storetest.Key(s.store.Name(), shard, "settled")).Result()
		require.NoError(s.t, err)
		n += int(length)
	}
	return n
}

func (s *settling) state(number int64) string {
	s.t.Helper()
	r, _ := s.read(number)
	if r == nil {
		return "gone"
	}
	return r.state.String()
}

func TestSettlerSettlesWhatIsSignalled(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.settler.Run(ctx) }()
		stored := s.stored("stored", past)
		pending := s.stored("pending", past, func(i *insert) { i.state = statePending })
		waits := s.stored("waits", far)
		s.publish()
		s.eventually("rows are settled", func() bool { return s.entries() == 0 })
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, "published", s.state(stored))
		require.Equal(t, "published", s.state(pending))
		require.Equal(t, "stored", s.state(waits))
		require.Equal(t, 2, s.count("finished_ms > 1000000"))
	})
}

func TestSettlerFates(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		cancelled, moved := s.stored("cancelled", far), s.stored("moved", far)
		require.NoError(t, s.store.Producer().Cancel(t.Context(), "cancelled", "k", store.Durability{}).Err)
		due := s.due(far + time.Hour)
		require.NoError(t, s.store.Producer().Reschedule(t.Context(), "moved", "k", store.When{Ms: due}, store.Durability{}).Err)
		s.flush()
		require.Equal(t, "cancelled", s.state(cancelled))
		require.Equal(t, "stored", s.state(moved))
		r, _ := s.read(moved)
		require.Equal(t, due, r.dueMs)
		require.Zero(t, s.entries())
	})
}

func TestSettlerDiscards(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		d.keeps = false
		s := newSettling(t, d)
		published, cancelled := s.stored("published", past), s.stored("cancelled", far)
		s.publish()
		require.NoError(t, s.store.Producer().Cancel(t.Context(), "cancelled", "k", store.Durability{}).Err)
		s.flush()
		require.Equal(t, "gone", s.state(published))
		require.Equal(t, "cancelled", s.state(cancelled), "it tells what became of it")
	})
}

func TestSettlerForgetsWhatNobodyKnows(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		deleted := s.stored("deleted", past)
		_, err := d.query("").add("DELETE FROM {t} WHERE id = ?", deleted).exec(t.Context(), d.db)
		require.NoError(t, err)
		other := s.stored("other", past, func(i *insert) { i.token = "~token-in-redis-" })
		_, err = d.query("").add("UPDATE {t} SET token = ? WHERE id = ?", "~token-in-table-", other).exec(t.Context(), d.db)
		require.NoError(t, err)
		s.publish()
		require.NoError(t, s.rdb.HSet(t.Context(), storetest.Key(s.store.Name(), 0, "settled"), "~no-text-at-all-", "p\xff\xfe").Err())
		require.Equal(t, 3, s.entries())
		s.flush()
		require.Zero(t, s.entries())
		require.Equal(t, "stored", s.state(other), "its token is another one")
	})
}

func TestSettlerWaitsForRowsInUse(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		locked, operated, free := s.stored("locked", past), s.stored("operated", past), s.stored("free", past)
		op := s.insert(insert{id: "operated", key: "k", verb: verbCancel})
		s.publish()
		tx, commit := s.begin()
		rows, err := d.rows(t.Context(), tx, d.query("").add("SELECT "+columns+" FROM {t} WHERE id = ? FOR UPDATE", locked))
		require.NoError(t, err)
		require.Len(t, rows, 1)

		require.True(t, s.drain())
		require.Equal(t, "published", s.state(free))
		require.Equal(t, "stored", s.state(locked))
		require.Equal(t, "stored", s.state(operated), "the relay decides about its operation first")
		require.Equal(t, 2, s.entries())

		commit()
		require.True(t, s.drain())
		require.Equal(t, "published", s.state(locked))
		require.Equal(t, 1, s.entries())

		_, err = d.query("").add("UPDATE {t} SET status = 4 WHERE id = ?", op).exec(t.Context(), d.db)
		require.NoError(t, err)
		require.False(t, s.drain())
		require.Equal(t, "published", s.state(operated))
		require.Zero(t, s.entries())
	})
}

// A relay that died after it had moved the message in Redis left a row that does
// not know its token in force yet.
func TestSettlerKeepsWhatAnOperationWillKnow(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		head := s.stored("moved", far)
		before, _ := s.read(head)
		op := s.insert(insert{id: "moved", key: "k", verb: verbReschedule, dueMs: s.due(past)})
		token, _ := s.read(op)
		require.Equal(t, store.Done, s.store.Rows().RescheduleRow(t.Context(), store.Operation{ID: "moved", Key: "k", Token: token.token, Target: before.token}, token.dueAt()).Code)
		s.publish()
		require.True(t, s.drain())
		require.Equal(t, 1, s.entries())
		s.start()
		s.drained()
		s.flush()
		require.Equal(t, "published", s.state(head))
	})
}

func TestSettlerWithADatabaseAway(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		away, err := Open(DatabaseConfig{Dialect: schema.Postgres, DSN: "postgres://nobody@127.0.0.1:1/none?sslmode=disable"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = away.Close() })
		s := newSettling(t, d, func(c *SettlerConfig) {
			c.Databases = append([]Settled{{Database: away}}, c.Databases...)
		})
		here := s.stored("here", past)
		there := s.stored("there", past)
		_, err = d.query("").add("DELETE FROM {t} WHERE id = ?", there).exec(t.Context(), d.db)
		require.NoError(t, err)
		s.publish()
		s.settler.Acknowledged(s.orders, []store.SettledRow{{Token: "~nobody-knows-it", ID: "stale", Key: "k"}})
		for range 3 {
			_, err := s.settler.drain(bounded(t), true)
			require.Error(t, err)
		}
		require.Equal(t, "stored", s.state(here), "a pass ends early while a database is away")
		require.Equal(t, 2, s.entries())
		require.Len(t, s.settler.stale, 1)
		require.Equal(t, 1, s.logs.count("outbox_settle_database_away"))
		require.Error(t, s.settler.Flush(bounded(t)))
	})
}

func TestSettlerOffersToAllDatabases(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		other := *d
		other.table = "other"
		statements, err := schema.Up(d.dialect.name, "other")
		require.NoError(t, err)
		for _, statement := range statements {
			_, err := d.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		s := newSettling(t, d, func(c *SettlerConfig) {
			c.Databases = []Settled{{Database: &other}, {Database: d}}
		})
		number := s.stored("one", past)
		s.publish()
		s.flush()
		require.Equal(t, "published", s.state(number))
	})
}

func TestSettlerTakesLateAcknowledgements(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		late, waits := s.stored("late", far), s.stored("waits", far)
		r, _ := s.read(late)
		s.settler.Acknowledged(s.orders, []store.SettledRow{
			{Token: r.token, ID: "late", Key: "k"}, {Token: "not-of-an-outbox", ID: "waits", Key: "k"},
		})
		require.Len(t, s.settler.stale, 1)
		s.flush()
		require.Equal(t, "published", s.state(late))
		require.Equal(t, "stored", s.state(waits))
		require.Empty(t, s.settler.stale)

		many := make([]store.SettledRow, staleLimit+5)
		for i := range many {
			many[i] = store.SettledRow{Token: "~nobody-knows-it", ID: "x"}
		}
		s.settler.Acknowledged(s.orders, many)
		require.Len(t, s.settler.stale, staleLimit)
		require.Equal(t, 5, s.settler.dropped)
	})
}

// insertMany writes n rows that are stored, and their messages where wanted.
func (s *realScene) insertMany(n int, due time.Duration, put bool) {
	s.t.Helper()
	for start := 0; start < n; start += 500 {
		q := s.db.query("INSERT INTO {t} (queue, message_key, message_id, status, topic, body, due_ms, token) VALUES ")
		var rows []store.Row
		for i := start; i < min(n, start+500); i++ {
			if i > start {
				q.add(",")
			}
			token := fmt.Sprintf("~%015d", i)
			r := row{
				identity: identity{s.orders, "k", fmt.Sprintf("many-%d", i)}, token: token, dueMs: s.due(due),
				content: content{topic: "topic", body: []byte("b")},
			}
			m, err := r.message(&s.config.Queues[0])
			require.NoError(s.t, err)
			rows = append(rows, store.Row{Token: token, Message: m, DueAt: m.DueAt})
			q.add("(?,?,?,1,?,?,?,?)", r.queue, r.key, r.id, r.content.topic, r.content.body, r.dueMs, token)
		}
		_, err := q.exec(s.t.Context(), s.db.db)
		require.NoError(s.t, err)
		if put {
			for _, answer := range s.store.Rows().Put(s.t.Context(), rows) {
				require.Equal(s.t, store.Created, answer.Code, answer.Err)
			}
		}
	}
}

func (d *Database) analyze(t *testing.T) {
	t.Helper()
	statement := "ANALYZE " + d.table
	if !d.dialect.arrays {
		statement = "ANALYZE TABLE " + d.table
	}
	rows, err := d.db.QueryContext(t.Context(), statement)
	require.NoError(t, err)
	for rows.Next() {
		continue
	}
	require.NoError(t, rows.Close())
}

func TestSettlerManyEntries(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newSettling(t, d)
		s.insertMany(3500, past, true)
		for s.entries() < 3500 {
			s.publish()
		}
		started := time.Now()
		s.flush()
		t.Log("settled in", time.Since(started))
		require.Zero(t, s.entries())
		require.Equal(t, 3500, s.count("status = 2"))
	})
}

// plan is how the database would run a query.
func (q *query) plan(t *testing.T, db querier) string {
	t.Helper()
	var text strings.Builder
	err := (&query{d: q.d, args: q.args, text: builder("EXPLAIN " + q.text.String())}).each(t.Context(), db, func(rows *sql.Rows) error {
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		cells, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		err = rows.Scan(into...)
		for i := range cells {
			fmt.Fprintf(&text, "%s=%s ", names[i], cells[i].String)
		}
		text.WriteString("\n")
		return err
	})
	require.NoError(t, err)
	return text.String()
}

func TestSettlerUsesIndexes(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReal(t, d)
		s.insertMany(10_000, far, false)
		for _, suffix := range []string{"a", "b", "c"} {
			q := d.query("").add("INSERT INTO {t} (queue, message_key, message_id, status, topic, body, due_ms, token)"+
				" SELECT queue, message_key, concat(message_id, ?), status, topic, body, due_ms, token FROM {t}", suffix)
			if d.dialect.arrays {
				q = d.query("").add("INSERT INTO {t} (queue, message_key, message_id, status, topic, body, due_ms, token)"+
					" SELECT queue, message_key, message_id || ?, status, topic, body, due_ms, token FROM {t}", suffix)
			}
			_, err := q.exec(t.Context(), d.db)
			require.NoError(t, err)
		}
		_, err := d.query("UPDATE {t} SET status = 2, finished_ms = 1 WHERE id % 2 = 0").exec(t.Context(), d.db)
		require.NoError(t, err)
		d.analyze(t)
		var list []identity
		for i := range 500 {
			list = append(list, identity{s.orders, "k", fmt.Sprintf("many-%d", i*7)})
		}
		live := d.of(list, "id, queue, message_key, message_id, token", "op = 0 AND status IN (0, 1)", " FOR UPDATE SKIP LOCKED")
		requireIndex(t, live, "box_live", "box_history")
		ended := d.of(list, "queue, message_key, message_id, token, status", "op = 0 AND status > 1", "")
		requireIndex(t, ended, "box_history", "box_history")
		requireIndex(t, d.storedQuery(columns, s.orders, cursor{5, 5}, maxDueMs, 500), "box_stored", "box_due")
		heads := work{queue: s.orders, operations: true, untilMs: time.Now().UnixMilli(), most: 500}
		requireIndex(t, d.headsQuery(heads), "box_history", "box_history")
		requireIndex(t, d.headsQuery(heads), "box_due", "box_due")
		requireIndex(t, d.lookQuery([]string{s.orders, "mails"}), "box_due", "box_due")
	})
}

// TestChunksOfOneDueTime: where all rows are due at once, a chunk does not read
// again what those before it have read.
func TestChunksOfOneDueTime(t *testing.T) {
	t.Parallel()
	d := openTest(t, schema.MySQL, testenv.MariaDB(t))
	s := newReal(t, d)
	s.insertMany(10_000, far, false)
	_, err := d.query("UPDATE {t} SET status = 1, due_ms = 5").exec(t.Context(), d.db)
	require.NoError(t, err)
	d.analyze(t) // MariaDB counts a table that changed a while later; until then it may guess a plan.
	var last int64
	require.NoError(t, d.query("SELECT MAX(id) FROM {t}").each(t.Context(), d.db, func(rows *sql.Rows) error { return rows.Scan(&last) }))
	conn, err := d.db.Conn(t.Context()) // What was read is counted by session.
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "FLUSH STATUS")
	require.NoError(t, err)
	found, read := 0, 0
	q := d.storedQuery(columns, s.orders, cursor{5, last - 10}, 10, chunkRows)
	require.NoError(t, q.each(t.Context(), conn, func(*sql.Rows) error { found++; return nil }))
	status := d.query("SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_icp_attempts')")
	require.NoError(t, status.each(t.Context(), conn, func(rows *sql.Rows) error {
		var name string
		var count int
		err := rows.Scan(&name, &count)
		read += count
		return err
	}))
	require.Equal(t, 10, found)
	require.Positive(t, read)
	require.Less(t, read, 100)
}

func requireIndex(t *testing.T, q *query, onPostgres, onMySQL string) {
	t.Helper()
	plan := q.plan(t, q.d.db)
	t.Log(plan)
	if q.d.dialect.arrays {
		require.Contains(t, plan, onPostgres)
		require.NotContains(t, plan, "Seq Scan on box")
		return
	}
	require.Contains(t, plan, onMySQL)
	for line := range strings.Lines(plan) {
		if strings.Contains(line, "table=box ") || strings.Contains(line, "table=o ") {
			require.NotContains(t, line, "type=ALL ")
			require.NotContains(t, line, "type=index ")
		}
	}
}

func builder(text string) (b strings.Builder) {
	b.WriteString(text)
	return b
}
