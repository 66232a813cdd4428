package outboxtest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// When a message is due, from now: has been, before and after the usual horizon.
const (
	Past = -time.Second
	Soon = time.Minute
	Far  = 3 * time.Hour
)

const patient = 2 * time.Minute

// Scene is a database with rows, and a log.
type Scene struct {
	t  *testing.T
	DB *Database
	// Orders is the queue of rows that name none.
	Orders string
	Logs   *Logs
}

// NewScene is a scene on an empty table.
func NewScene(t *testing.T, d *Database) *Scene {
	t.Helper()
	return &Scene{t: t, DB: d, Orders: "orders", Logs: &Logs{}}
}

// Logger writes to Logs.
func (s *Scene) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Run runs what runs until ctx ends, until the returned function is called, or the
// test ends.
func (s *Scene) Run(run func(ctx context.Context) error) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// Insert is a row as a producer writes it.
type Insert struct {
	Queue, Key, ID string
	Verb           table.Verb
	State          table.State
	Tried          bool
	Token          string // empty: the database's default
	Target         int64  // 0: the live row of that identity, if there is one
	DueMs          int64
	Topic          string
	Headers        string // empty: NULL
	Body           string
	CreatedMs      int64 // 0: now
}

// Insert writes a row.
func (s *Scene) Insert(i Insert) (number int64) {
	s.t.Helper()
	return s.InsertInto(s.DB.SQL, i)
}

// InsertInto writes a row through tx. Like the SDK, it looks for the target of an
// operation itself.
func (s *Scene) InsertInto(tx Runner, i Insert) (number int64) {
	s.t.Helper()
	number, err := s.TryInsert(s.t.Context(), tx, i)
	require.NoError(s.t, err)
	return number
}

// TryInsert is InsertInto that may fail.
func (s *Scene) TryInsert(ctx context.Context, tx Runner, i Insert) (number int64, err error) {
	if i.Queue == "" {
		i.Queue = s.Orders
	}
	if i.Topic == "" && i.Verb == table.VerbSchedule {
		i.Topic = "topic"
	}
	target := sql.NullInt64{Int64: i.Target, Valid: i.Target != 0}
	if i.Verb != table.VerbSchedule && i.Target == 0 {
		err := s.DB.Query(ctx, tx, []any{&target}, nil,
			"SELECT id FROM {t} WHERE queue = ? AND message_key = ? AND message_id = ? AND op = 0 AND status IN (0, 1)", i.Queue, i.Key, i.ID)
		if err != nil {
			return 0, err
		}
	}
	columns, marks := "queue, message_key, message_id, op, status, tried, target, due_ms, topic, body", "?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
	values := []any{i.Queue, i.Key, i.ID, int64(i.Verb), int64(i.State), i.Tried, target, i.DueMs, i.Topic, []byte(i.Body)}
	for column, v := range map[string]any{"token": i.Token, "headers": i.Headers, "created_ms": i.CreatedMs} {
		if v == "" || v == int64(0) {
			continue
		}
		columns, marks, values = columns+", "+column, marks+", ?", append(values, v)
	}
	insert := "INSERT INTO {t} (" + columns + ") VALUES (" + marks + ")"
	if s.DB.IsPostgres() {
		err = s.DB.Query(ctx, tx, []any{&number}, nil, insert+" RETURNING id", values...)
		return number, err
	}
	result, err := tx.ExecContext(ctx, s.DB.Text(insert), values...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// InsertMany writes n rows that are stored, and returns them.
func (s *Scene) InsertMany(n int, due time.Duration) (rows []*table.Row) {
	s.t.Helper()
	for start := 0; start < n; start += 500 {
		var args []any
		for i := start; i < min(n, start+500); i++ {
			r := &table.Row{
				Identity: table.Identity{Queue: s.Orders, Key: "k", ID: fmt.Sprintf("many-%d", i)}, Token: fmt.Sprintf("~%015d", i), DueMs: s.Due(due),
				Content: table.Content{Topic: "topic", Body: []byte("b")},
			}
			rows = append(rows, r)
			args = append(args, r.Queue, r.Key, r.ID, r.Content.Topic, r.Content.Body, r.DueMs, r.Token)
		}
		marks := strings.TrimSuffix(strings.Repeat("(?,?,?,1,?,?,?,?),", min(n, start+500)-start), ",")
		s.DB.Exec(s.t, "INSERT INTO {t} (queue, message_key, message_id, status, topic, body, due_ms, token) VALUES "+marks, args...)
	}
	return rows
}

// Begin is a transaction of a producer.
func (s *Scene) Begin() (tx *sql.Tx, commit func()) {
	s.t.Helper()
	tx, err := s.DB.SQL.BeginTx(s.t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback() })
	return tx, func() { require.NoError(s.t, tx.Commit()) }
}

// Due is that instant from now, in milliseconds.
func (s *Scene) Due(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

// Now is the database's clock.
func (s *Scene) Now() int64 {
	ms, _, err := s.DB.Clock(s.t.Context())
	require.NoError(s.t, err)
	return ms
}

// Read returns a row, nil if there is none.
func (s *Scene) Read(number int64) (r *table.Row, reason string) {
	s.t.Helper()
	r, reason, err := s.TryRead(number)
	require.NoError(s.t, err)
	return r, reason
}

// TryRead is Read that may fail.
func (s *Scene) TryRead(number int64) (r *table.Row, reason string, err error) {
	var found table.Row
	into := []any{
		&found.Number, &found.Queue, &found.Key, &found.ID, &found.Verb, &found.State, &found.Maybe, &found.Token, &found.UID, &found.Target, &found.Revision,
		&found.DueMs, &found.CreatedMs, &found.Content.Topic, &found.Content.Headers, &found.Content.Body, &reason,
	}
	err = s.DB.Query(s.t.Context(), s.DB.SQL, into, func() { r = &found },
		"SELECT id, queue, message_key, message_id, op, status, maybe, token, uid, target, revision, due_ms, created_ms, topic, headers, body, reason"+
			" FROM {t} WHERE id = ?", number)
	return r, reason, err
}

// State is that of a row, or "gone".
func (s *Scene) State(number int64) string {
	s.t.Helper()
	r, _ := s.Read(number)
	if r == nil {
		return "gone"
	}
	return r.State.String()
}

// Count counts rows.
func (s *Scene) Count(where string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.DB.Query(s.t.Context(), s.DB.SQL, []any{&n}, nil, "SELECT count(*) FROM {t} WHERE "+where))
	return n
}

// Eventually waits until something is so.
func (s *Scene) Eventually(what string, met func() bool) {
	s.t.Helper()
	require.Eventually(s.t, met, patient, 5*time.Millisecond, "%s; log:\n%s", what, s.Logs)
}

// Drained waits until no operation is pending.
func (s *Scene) Drained() {
	s.t.Helper()
	s.Eventually("operations are done", func() bool { return s.Count("op > 0 AND status = 0") == 0 })
}

// RequireState waits until a row has left the state pending, and returns the reason
// that it has.
func (s *Scene) RequireState(number int64, want table.State) (reason string) {
	s.t.Helper()
	var r *table.Row
	s.Eventually(fmt.Sprintf("row %d is settled", number), func() bool {
		var err error
		r, reason, err = s.TryRead(number)
		return err == nil && (r == nil || r.State != table.StatePending) // The test may have killed our session, too.
	})
	require.NotNil(s.t, r, "row %d is gone", number)
	require.Equal(s.t, want.String(), r.State.String(), "row %d: %s", number, reason)
	return reason
}

// RequireStored waits until a row is stored.
func (s *Scene) RequireStored(number int64) {
	s.t.Helper()
	s.RequireState(number, table.StateStored)
}

// MessageOf is the message of a row.
func (s *Scene) MessageOf(r *table.Row) *message.Message {
	s.t.Helper()
	m, err := r.Message(message.RabbitMQ, message.DefaultMaxSize)
	require.NoError(s.t, err)
	return m
}

// Bounded is a context that ends with the test's patience.
func Bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	t.Cleanup(cancel)
	return ctx
}

// Logs are what was logged. It is safe for concurrent use.
type Logs struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements [io.Writer].
func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

// String is all of it.
func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// Count is how often a text was logged.
func (l *Logs) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buffer.Bytes(), []byte(text))
}
