package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patient = 2 * time.Minute

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, d *Database)) {
	t.Helper()
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, openTest(t, schema.Postgres, testenv.Postgres(t)))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		test(t, openTest(t, schema.MySQL, testenv.MariaDB(t)))
	})
}

// openTest opens a database and makes the tables.
func openTest(t *testing.T, dialect schema.Dialect, dsn string) *Database {
	t.Helper()
	d, err := Open(DatabaseConfig{Dialect: dialect, DSN: dsn, Table: "box", Connections: 20})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	statements, err := schema.Up(dialect, "box")
	require.NoError(t, err)
	for _, s := range statements {
		_, err := d.db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
	return d
}

// scene is a database, a fake Redis and a relay.
type scene struct {
	t        *testing.T
	db       *Database
	redis    *fakeRedis
	observer *recorder
	logs     *logBuffer
	orders   string
	config   Config
}

func newScene(t *testing.T, d *Database) *scene {
	t.Helper()
	s := &scene{t: t, db: d, redis: newFakeRedis(), observer: &recorder{}, logs: &logBuffer{}, orders: "orders"}
	s.config = Config{
		Database: d, Clock: s.redis.clock, Poll: 10 * time.Millisecond, Observer: s.observer,
		Queues: []Queue{s.queue("orders"), s.queue("mails")},
		Logger: slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return s
}

func (s *scene) queue(name string) Queue {
	return Queue{Name: name, Store: &fakeQueue{fakeRedis: s.redis, name: name}, Sink: message.NATS, MaxMessage: message.DefaultMaxSize}
}

// start runs a relay until the returned function is called, or the test ends.
func (s *scene) start(adjust ...func(*Config)) (relay *Relay, stop func()) {
	s.t.Helper()
	config := s.config
	for _, f := range adjust {
		f(&config)
	}
	relay, err := NewRelay(config)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				s.t.Error(err)
			}
		})
	}
	s.t.Cleanup(stop)
	return relay, stop
}

// insert is a row as a producer writes it.
type insert struct {
	queue, key, id string
	verb           verb
	state          state
	tried          bool
	token          string // empty: the database's default
	target         int64  // 0: NULL
	dueMs          int64
	topic          string
	headers        string // empty: NULL
	body           string
	createdMs      int64 // 0: now
	noTarget       bool
}

func (s *scene) insert(i insert) (number int64) {
	s.t.Helper()
	return s.insertInto(s.db.db, i)
}

// insertInto writes the row through tx. Like the SDK, it looks for the target of an
// operation itself.
func (s *scene) insertInto(tx querier, i insert) (number int64) {
	s.t.Helper()
	number, err := s.tryInsert(s.t.Context(), tx, i)
	require.NoError(s.t, err)
	return number
}

func (s *scene) tryInsert(ctx context.Context, tx querier, i insert) (number int64, err error) {
	d := s.db
	if i.queue == "" {
		i.queue = s.orders
	}
	if i.topic == "" && i.verb == verbSchedule {
		i.topic = "topic"
	}
	target := sql.NullInt64{Int64: i.target, Valid: i.target != 0}
	if i.verb != verbSchedule && i.target == 0 && !i.noTarget {
		q := d.query("").add("SELECT id FROM {t} WHERE queue = ? AND message_key = ? AND message_id = ? AND op = 0 AND status IN (0, 1)", i.queue, i.key, i.id)
		err := q.each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&target) })
		if err != nil {
			return 0, err
		}
	}
	q := d.query("").add("INSERT INTO {t} (queue, message_key, message_id, op, status, tried, target, due_ms, topic, body")
	values := []any{i.queue, i.key, i.id, int64(i.verb), int64(i.state), i.tried, target, i.dueMs, i.topic, []byte(i.body)}
	marks := "?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
	for column, v := range map[string]any{"token": i.token, "headers": i.headers, "created_ms": i.createdMs} {
		if v == "" || v == int64(0) {
			continue
		}
		q.add(", " + column)
		values, marks = append(values, v), marks+", ?"
	}
	q.add(") VALUES ("+marks+")", values...)
	if d.dialect.arrays {
		q.add(" RETURNING id")
		err = q.each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&number) })
		return number, err
	}
	result, err := tx.ExecContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// now is the database's clock.
func (s *scene) now() int64 {
	ms, _, err := s.db.clock(s.t.Context())
	require.NoError(s.t, err)
	return ms
}

// read returns a row, nil if there is none.
func (s *scene) read(number int64) (r *row, reason string) {
	s.t.Helper()
	r, reason, err := s.tryRead(number)
	require.NoError(s.t, err)
	return r, reason
}

func (s *scene) tryRead(number int64) (r *row, reason string, err error) {
	q := s.db.query("").add("SELECT "+columns+", reason FROM {t} WHERE id = ?", number)
	err = q.each(s.t.Context(), s.db.db, func(rows *sql.Rows) error {
		r = new(row)
		return rows.Scan(&r.number, &r.queue, &r.key, &r.id, &r.verb, &r.state, &r.maybe, &r.token, &r.target, &r.revision,
			&r.dueMs, &r.createdMs, &r.content.size, &r.content.topic, &r.content.headers, &r.content.body, &reason)
	})
	return r, reason, err
}

// count counts rows.
func (s *scene) count(where string) (n int) {
	s.t.Helper()
	err := s.db.query("SELECT count(*) FROM {t} WHERE "+where).each(s.t.Context(), s.db.db, func(rows *sql.Rows) error { return rows.Scan(&n) })
	require.NoError(s.t, err)
	return n
}

func (s *scene) eventually(what string, met func() bool) {
	s.t.Helper()
	require.Eventually(s.t, met, patient, 5*time.Millisecond, "%s; log:\n%s", what, s.logs)
}

// settled waits until a row has left the state pending.
func (s *scene) settled(number int64) (*row, string) {
	s.t.Helper()
	var r *row
	var reason string
	s.eventually(fmt.Sprintf("row %d is settled", number), func() bool {
		var err error
		r, reason, err = s.tryRead(number)
		return err == nil && (r == nil || r.state != statePending) // The test may have killed our session, too.
	})
	return r, reason
}

func (s *scene) requireState(number int64, want state) string {
	s.t.Helper()
	r, reason := s.settled(number)
	require.NotNil(s.t, r, "row %d is gone", number)
	require.Equal(s.t, want.String(), r.state.String(), "row %d: %s", number, reason)
	return reason
}

func (s *scene) requireStored(number int64) {
	s.t.Helper()
	s.requireState(number, stateStored)
}

type recorder struct {
	mu      sync.Mutex
	applied map[string]int
	backlog int
	blocked int
	oldest  time.Duration
	skew    time.Duration
	skews   int
	unknown int
}

func (r *recorder) Backlog(rows int, oldest time.Duration, blocked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog, r.oldest, r.blocked = rows, oldest, blocked
}

func (r *recorder) Applied(queue, verb, state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied == nil {
		r.applied = map[string]int{}
	}
	r.applied[queue+" "+verb+" "+state]++
}

func (r *recorder) Skew(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skew = ahead
	r.skews++
}

func (r *recorder) UnknownQueues(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown = rows
}

func (r *recorder) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied[what]
}

type logBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buffer.Bytes(), []byte(text))
}

var errTest = errors.New("broken by the test")
