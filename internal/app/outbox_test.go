package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// databaseFirst is a whole bridge with a database, and a producer that has no
// other way to it.
type databaseFirst struct {
	*testing.T
	driver schema.Dialect
	db     *sql.DB
	box    *outbox.Outbox
	topic  string
	nc     *nats.Conn
	js     jetstream.JetStream
	got    *arrivals
	config *config.Config
	logs   *records

	stopBridge context.CancelFunc
	ended      chan error
}

// newDatabaseFirst makes everything but the tables, and starts nothing.
func newDatabaseFirst(t *testing.T, driver schema.Dialect, dsn string, keys string) *databaseFirst {
	t.Helper()
	db, err := sqldb.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	d := &databaseFirst{T: t, driver: driver, db: db, topic: testenv.Name(t, "topic"), logs: &records{Handler: slog.NewTextHandler(t.Output(), nil), list: &recordList{}}}
	dialect := outbox.PostgreSQL
	if driver == schema.MySQL {
		dialect = outbox.MySQL
	}
	d.box = outbox.New(dialect)
	address := "127.0.0.1:" + testenv.Port(t)
	d.config = parse(t, `
prefix: %s
redis: {url: %q}
queues: {orders: {shards: 2, sink: events, compensation: %s-c}, mails: {shards: 2, sink: events, compensation: off}}
sinks: {events: {type: nats, url: %q}}
outbox: {driver: %s, dsn: %q, %s}
admin: {listen: %q}
`, testenv.Name(t, "p"), testenv.Redis(t), d.topic, testenv.NATS(t), driver, dsn, keys, address)
	d.nc, err = nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(d.nc.Close)
	d.js, err = jetstream.New(d.nc)
	require.NoError(t, err)
	_, err = d.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: d.topic, Subjects: []string{d.topic}})
	require.NoError(t, err)
	d.got = &arrivals{times: map[string]int{}}
	_, err = d.nc.Subscribe(d.topic, func(m *nats.Msg) { d.got.add(m.Header.Get("delay-id")) })
	require.NoError(t, err)
	return d
}

func (d *databaseFirst) migrate() {
	d.Helper()
	m, err := migrate.New(d.db, d.driver, schema.DefaultTable)
	require.NoError(d, err)
	_, err = m.Up(d.Context())
	require.NoError(d, err)
}

// start runs a bridge until stop.
func (d *databaseFirst) start() {
	d.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.Context()))
	d.stopBridge, d.ended = cancel, make(chan error, 1)
	go func() { d.ended <- Run(ctx, d.config, slog.New(d.logs)) }()
	d.Cleanup(d.stop)
}

func (d *databaseFirst) stop() {
	d.Helper()
	if d.stopBridge == nil {
		return
	}
	d.stopBridge()
	d.stopBridge = nil
	assert.NoError(d, <-d.ended)
}

// commit runs a producer's transaction.
func (d *databaseFirst) commit(run func(tx *sql.Tx)) {
	d.Helper()
	tx, err := d.db.BeginTx(d.Context(), nil)
	require.NoError(d, err)
	run(tx)
	require.NoError(d, tx.Commit())
}

func (d *databaseFirst) schedule(tx *sql.Tx, id string, when delay.When) delay.Ref {
	d.Helper()
	ref, err := d.box.Schedule(d.Context(), tx, "orders", delay.Message{ID: id, Key: "k", Topic: d.topic, Body: []byte(id)}, when)
	require.NoError(d, err)
	return ref
}

// row is the operation and the state that the box tells; "none" without a row.
func (d *databaseFirst) row(ref delay.Ref) (told string) {
	d.Helper()
	d.commit(func(tx *sql.Tx) {
		row, err := d.box.Get(d.Context(), tx, "orders", ref)
		if errors.Is(err, delay.ErrNotFound) {
			told = "none"
			return
		}
		require.NoError(d, err)
		told = fmt.Sprint(row.Op, " ", row.State)
	})
	return told
}

func (d *databaseFirst) eventually(what string, is func() bool) {
	d.Helper()
	require.Eventually(d, is, 2*time.Minute, 20*time.Millisecond, what)
}

func (d *databaseFirst) becomes(ref delay.Ref, want string) {
	d.Helper()
	d.eventually(ref.ID+" becomes "+want, func() bool { return d.row(ref) == want })
}

// page is the body of a page of the admin listener; empty while there is none.
func (d *databaseFirst) page(path string) string {
	d.Helper()
	request, err := http.NewRequestWithContext(d.Context(), http.MethodGet, "http://"+d.config.Admin.Listen+path, nil)
	require.NoError(d, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	recorder := httptest.NewRecorder()
	_ = response.Write(recorder.Body)
	return recorder.Body.String()
}

// metric is the value of a series; 0 while there is none.
func (d *databaseFirst) metric(series string) (value float64) {
	d.Helper()
	for line := range strings.Lines(d.page("/metrics")) {
		if told, is := strings.CutPrefix(line, series+" "); is {
			_, err := fmt.Sscan(told, &value)
			require.NoError(d, err)
		}
	}
	return value
}

// arrivals counts what the broker got.
type arrivals struct {
	mu    sync.Mutex
	times map[string]int
}

func (a *arrivals) add(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times[id]++
}

func (a *arrivals) of(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.times[id]
}

// count counts the lines of an event.
func (r *records) count(event string) (n int) { return len(r.levels(event)) }

// levels are those of the lines of an event.
func (r *records) levels(event string) (found []slog.Level) {
	r.list.mu.Lock()
	defer r.list.mu.Unlock()
	for _, l := range r.list.lines {
		if l.event == event {
			found = append(found, l.level)
		}
	}
	return found
}

// onDatabases runs a test on each kind of database.
func onDatabases(t *testing.T, keys string, test func(t *testing.T, d *databaseFirst)) {
	t.Helper()
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			test(t, newDatabaseFirst(t, driver, dsn(t), keys))
		})
	}
}

// TestDatabaseFirst goes the whole way: rows of committed transactions are
// published once, those of others never, and the rows tell what became of them.
// It checks I12.
func TestDatabaseFirst(t *testing.T) {
	onDatabases(t, "", func(t *testing.T, d *databaseFirst) {
		d.migrate()
		d.start()
		var soon, moved, cancelled, late delay.Ref
		d.commit(func(tx *sql.Tx) {
			soon = d.schedule(tx, "soon", delay.After(100*time.Millisecond))
			moved = d.schedule(tx, "moved", delay.After(time.Hour/2))
			cancelled = d.schedule(tx, "cancelled", delay.After(time.Hour/2))
			late = d.schedule(tx, "late", delay.After(time.Millisecond))
		})
		tx, err := d.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		gone := d.schedule(tx, "rolled back", delay.After(time.Millisecond))
		require.NoError(t, tx.Rollback())

		d.becomes(soon, "schedule published")
		d.becomes(late, "schedule published")
		d.becomes(moved, "schedule stored")
		d.becomes(cancelled, "schedule stored")
		d.commit(func(tx *sql.Tx) {
			require.NoError(t, d.box.Cancel(t.Context(), tx, "orders", cancelled))
			require.NoError(t, d.box.Cancel(t.Context(), tx, "orders", late))
			require.NoError(t, d.box.Reschedule(t.Context(), tx, "orders", moved, delay.After(50*time.Millisecond)))
		})
		d.becomes(cancelled, "cancel cancelled")
		d.becomes(late, "cancel too_late")
		d.becomes(moved, "reschedule published")
		assert.Equal(t, "none", d.row(gone))
		for id, times := range map[string]int{"soon": 1, "late": 1, "moved": 1, "cancelled": 0, "rolled back": 0} {
			assert.Equal(t, times, d.got.of(id), id)
		}
		assert.Contains(t, d.page("/readyz"), "ok outbox default")
		for _, line := range []string{
			`delaybridge_outbox_up{outbox="default"} 1`,
			`delaybridge_outbox_applied_total{outbox="default",queue="orders",state="cancelled",verb="cancel"} 1`,
		} {
			d.eventually(line, func() bool { return strings.Contains(d.page("/metrics"), line) }) // Counted after the row is written.
		}
		d.eventually("three rows are told their end", func() bool {
			// The first audit may find the end of a row before the settler does.
			return d.metric(`delaybridge_outbox_settled_total{outbox="default"}`)+
				d.metric(`delaybridge_outbox_audited_total{outbox="default",result="settled"}`) == 3
		})
		d.stop()
	})
}

// count counts rows of a table of the outbox.
func (d *databaseFirst) count(table, where string) (n int) {
	d.Helper()
	require.NoError(d, d.db.QueryRowContext(d.Context(), "SELECT count(*) FROM "+schema.DefaultTable+table+" "+where).Scan(&n))
	return n
}

// TestKeepNone deletes rows when their messages are published.
func TestKeepNone(t *testing.T) {
	onDatabases(t, "keep: 0", func(t *testing.T, d *databaseFirst) {
		d.migrate()
		d.start()
		var refs []delay.Ref
		d.commit(func(tx *sql.Tx) {
			for i := range 50 {
				refs = append(refs, d.schedule(tx, fmt.Sprint("m", i), delay.After(time.Millisecond)))
			}
		})
		d.eventually("all are published, and gone", func() bool { return d.count("", "") == 0 })
		d.stop()
		for _, ref := range refs {
			assert.Equal(t, 1, d.got.of(ref.ID), ref.ID)
		}
	})
}

// TestRestartWithRows stops the bridge while rows are everywhere on their way:
// nothing is lost, and nothing comes twice.
func TestRestartWithRows(t *testing.T) {
	onDatabases(t, "batch: 20", func(t *testing.T, d *databaseFirst) {
		d.migrate()
		const each, rounds = 60, 4
		for round := range rounds {
			d.start()
			d.commit(func(tx *sql.Tx) {
				for i := range each {
					d.schedule(tx, fmt.Sprintf("m%d-%d", round, i), delay.After(time.Duration(i)*5*time.Millisecond))
				}
			})
			d.eventually("some arrive", func() bool { return d.got.of(fmt.Sprintf("m%d-%d", round, each/3)) > 0 })
			d.stop()
		}
		d.start()
		d.eventually("all rows are published", func() bool { return d.count("", "WHERE status = 2") == rounds*each })
		for round := range rounds {
			for i := range each {
				id := fmt.Sprintf("m%d-%d", round, i)
				assert.Equal(t, 1, d.got.of(id), id)
			}
		}
		assert.Zero(t, d.logs.count("outbox_unfit"))
	})
}

// TestDatabaseLater starts the bridge first, then the database, then makes the
// tables. All the while what is in Redis is published.
func TestDatabaseLater(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, "")
	d := newDatabaseFirst(t, schema.Postgres, server.URL(), "")
	server.Kill()
	d.start()
	rdb, err := d.config.Redis.Open("producer")
	require.NoError(t, err)
	defer func() { assert.NoError(t, rdb.Close()) }()
	d.publishes(rdb, "while the database is away")
	d.eventually("it is told", func() bool { return strings.Contains(d.page("/readyz"), "down outbox default") })
	require.Contains(t, d.page("/readyz"), "200 OK")
	require.Contains(t, d.page("/metrics"), `delaybridge_outbox_up{outbox="default"} 0`)

	server.Start()
	d.eventually("the tables are missed", func() bool { return d.logs.count("outbox_unfit") > 0 })
	require.Contains(t, d.page("/readyz"), "bridge outbox migrate up")
	d.publishes(rdb, "while there are no tables")
	assert.Contains(t, d.page("/metrics"), `delaybridge_outbox_audited_total{outbox="default",result="put_back"} 0`, "the first one is an increase")
	d.migrate()
	d.commit(func(tx *sql.Tx) { d.schedule(tx, "row", delay.After(0)) })
	d.becomes(delay.Ref{ID: "row", Key: "k"}, "schedule published")
	assert.Contains(t, d.page("/readyz"), "ok outbox default")
	assert.Equal(t, 1, d.logs.count("outbox_database_away"))
	assert.Equal(t, 1, d.logs.count("outbox_unfit"))
	assert.Equal(t, []slog.Level{slog.LevelWarn}, d.logs.levels("outbox_fit"), "the error is taken back where INFO is left out")

	server.Kill()
	d.publishes(rdb, "while the database is away again")
	d.eventually("it is told again", func() bool { return strings.Contains(d.page("/readyz"), "down outbox default") })
	server.Start()
	d.db.SetMaxIdleConns(0) // The producer's own sessions have died, too.
	d.eventually("it is back", func() bool { return strings.Contains(d.page("/readyz"), "ok outbox default") })
	d.commit(func(tx *sql.Tx) { d.schedule(tx, "later", delay.After(0)) })
	d.becomes(delay.Ref{ID: "later", Key: "k"}, "schedule published")
}

// publishes sends a message through Redis, without the database.
func (d *databaseFirst) publishes(rdb redis.UniversalClient, id string) {
	d.Helper()
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(d.config.Prefix))
	require.NoError(d, err)
	d.eventually("the layout is made", func() bool {
		_, err := client.Schedule(d.Context(), delay.Message{ID: id, Topic: d.topic}, delay.After(0))
		return err == nil
	})
	d.eventually(id+" arrives", func() bool { return d.got.of(id) == 1 })
}

// TestFastPath pushes rows to Redis after the commit, while no relay could, and
// names them in compensation messages where Redis is away.
func TestFastPath(t *testing.T) {
	onDatabases(t, "poll: 1h, horizon: 10h, relays: 1", func(t *testing.T, d *databaseFirst) {
		d.migrate()
		var first delay.Ref
		d.commit(func(tx *sql.Tx) { first = d.schedule(tx, "first", delay.After(time.Hour)) })
		d.start()
		rdb, err := d.config.Redis.Open("producer")
		require.NoError(t, err)
		defer func() { assert.NoError(t, rdb.Close()) }()
		d.publishes(rdb, "the layout is there")
		d.becomes(first, "schedule stored") // The relay has looked, and will not again for an hour.
		dialect := outbox.PostgreSQL
		if d.driver == schema.MySQL {
			dialect = outbox.MySQL
		}
		fast := outbox.New(dialect, outbox.WithRedis(rdb, d.config.Prefix))
		push := func(box *outbox.Outbox, id string) (delay.Ref, error) {
			tx, err := d.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			tracked := box.Track(tx)
			ref, err := box.Schedule(t.Context(), tracked, "orders", delay.Message{ID: id, Key: "k", Topic: d.topic}, delay.After(0))
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			return ref, tracked.Push(t.Context())
		}
		var ref delay.Ref
		for try := 0; ; try++ { // A machine may be so busy that Redis does not answer before the commit.
			if ref, err = push(fast, fmt.Sprint("pushed-", try)); err == nil || try == 20 {
				break
			}
		}
		require.NoError(t, err)
		d.becomes(ref, "schedule published")
		pushed := ref.ID

		nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		defer func() { assert.NoError(t, nowhere.Close()) }()
		box := outbox.New(dialect, outbox.WithRedis(nowhere, d.config.Prefix), outbox.WithCompensationTopic(d.topic+"-c"),
			outbox.WithCompensation(func(ctx context.Context, topic string, _ map[string]string, body []byte) error {
				_, err := d.js.Publish(ctx, topic, body)
				return err
			}))
		counted := func(result string) bool {
			return strings.Contains(d.page("/metrics"), `delaybridge_compensations_total{queue="orders",result="`+result+`"} `)
		}
		for try := 0; ; try++ { // On a busy machine the relay may be first, or the second over that a row has.
			id := fmt.Sprint("compensated-", try)
			ref, _ = push(box, id) // That it was not pushed is an error, or none: both are fine.
			d.becomes(ref, "schedule published")
			assert.Equal(t, 1, d.got.of(id), id)
			d.eventually("it is counted", func() bool { // After the row's transaction, and so perhaps after the row was settled.
				return counted("stored") || counted("left") || counted("already_there")
			})
			if counted("stored") || try == 20 {
				break
			}
		}
		assert.Equal(t, 1, d.got.of(pushed))
		assert.True(t, counted("stored"))
	})
}

// TestCompensationWithoutADatabase: compensations of rows of which one database is
// away hold nothing up, and a row of the other is found.
func TestCompensationWithoutADatabase(t *testing.T) {
	t.Parallel()
	const keys = "poll: 1h, horizon: 10h, relays: 1"
	server := testenv.StartMariaDB(t, "")
	one := newDatabaseFirst(t, schema.Postgres, testenv.Postgres(t), keys)
	two := newDatabaseFirst(t, schema.MySQL, server.URL(), keys)
	one.config.Outbox["away"] = two.config.Outbox["default"] // It is asked first.
	one.migrate()
	two.migrate()
	server.Kill()
	var row delay.Ref
	one.commit(func(tx *sql.Tx) { row = one.schedule(tx, "first", delay.After(time.Hour)) })
	one.start()
	one.becomes(row, "schedule stored") // The relay has looked, and will not again for an hour.
	one.commit(func(tx *sql.Tx) { row = one.schedule(tx, "row", delay.After(0)) })
	publish := func(kind, id, key string) {
		m := &compensation.Message{Kind: kind, Queue: "orders", ID: id, Key: key, Token: testenv.Name(t, "~")[:16]}
		if kind == compensation.KindMessage {
			m.Token, m.Topic, m.DueAt, m.ValidUntil = "~"+m.Token[:15], one.topic, time.Now(), time.Now().Add(time.Hour)
		}
		body, err := compensation.Encode(m)
		require.NoError(t, err)
		_, err = one.js.Publish(t.Context(), one.topic+"-c", body)
		require.NoError(t, err)
	}
	counted := func(line string) {
		one.eventually(line, func() bool {
			return strings.Contains(one.page("/metrics"), `delaybridge_compensations_total{queue="orders",result=`+line)
		})
	}
	publish(compensation.KindRow, "nobody's", "k")
	counted(`"left"} 1`)
	publish(compensation.KindRow, "row", "k")
	one.becomes(row, "schedule published")
	publish(compensation.KindMessage, "message", "")
	one.eventually("it arrives", func() bool { return one.got.of("message") == 1 })
}

// TestTwoDatabases has one outbox in each kind of database, for the same queue:
// each row hears of its own message, and one of which the database is away does
// not keep the other from working.
func TestTwoDatabases(t *testing.T) {
	t.Parallel()
	server := testenv.StartMariaDB(t, "")
	one := newDatabaseFirst(t, schema.Postgres, testenv.Postgres(t), "")
	two := newDatabaseFirst(t, schema.MySQL, server.URL(), "")
	one.config.Outbox["second"] = two.config.Outbox["default"]
	two.config, two.topic, two.got = one.config, one.topic, one.got
	one.migrate()
	two.migrate()
	one.start()
	each := func(id string) {
		for i, d := range []*databaseFirst{one, two} {
			d.commit(func(tx *sql.Tx) { d.schedule(tx, fmt.Sprint(id, i), delay.After(0)) })
			d.becomes(delay.Ref{ID: fmt.Sprint(id, i), Key: "k"}, "schedule published")
		}
	}
	each("both")
	server.Kill()
	one.commit(func(tx *sql.Tx) { one.schedule(tx, "alone", delay.After(0)) })
	one.becomes(delay.Ref{ID: "alone", Key: "k"}, "schedule published")
	one.eventually("it is told", func() bool { return strings.Contains(one.page("/readyz"), "down outbox second") })
	require.Contains(t, one.page("/readyz"), "ok outbox default")
	server.Start()
	each("again")
	one.stop()
}
