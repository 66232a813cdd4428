package outbox_test

import (
	"context"
	"database/sql"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// noTx fails the test when anything is sent.
type noTx struct{ *testing.T }

func (noTx) Commit() error { return nil }

func (t noTx) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	t.Error("something was sent")
	return nil, sql.ErrConnDone
}

func TestInvalidSendsNothing(t *testing.T) {
	t.Parallel()
	tx, box := noTx{t}, outbox.New(outbox.PostgreSQL)
	good := delay.Message{ID: "a", Topic: "t"}
	schedule := func(box *outbox.Outbox, queue string, m delay.Message, when delay.When) func() error {
		return func() error { _, err := box.Schedule(t.Context(), tx, queue, m, when); return err }
	}
	for want, call := range map[string]func() error{
		`topic ""`:                     schedule(box, "orders", delay.Message{ID: "a"}, delay.After(0)),
		`id " a"`:                      schedule(box, "orders", delay.Message{ID: " a", Topic: "t"}, delay.After(0)),
		`header "delay-id"`:            schedule(box, "orders", delay.Message{Topic: "t", Headers: map[string]string{"delay-id": ""}}, delay.After(0)),
		`header "delay-first-at"`:      schedule(box, "orders", delay.Message{Topic: "t", Headers: map[string]string{"delay-first-at": "0000000000000"}}, delay.After(0)),
		`queue "Orders"`:               schedule(box, "Orders", good, delay.After(0)),
		`due "": none was given`:       schedule(box, "orders", good, delay.When{}),
		`due "at 1969-12-31T23:59:59Z`: schedule(box, "orders", good, delay.At(time.Unix(-1, 0).UTC())),
		`due "at 10000-`:               schedule(box, "orders", good, delay.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))),
		`table "a-b"`:                  schedule(outbox.New(outbox.MySQL, outbox.WithTable("a-b")), "orders", good, delay.After(0)),
		`dialect "oracle"`:             schedule(outbox.New("oracle"), "orders", good, delay.After(0)),
		`max size "0"`:                 schedule(outbox.New(outbox.MySQL, outbox.WithMaxSize(0)), "orders", good, delay.After(0)),
		`prefix "{a}"`:                 schedule(outbox.New(outbox.MySQL, outbox.WithRedis(nil, "{a}")), "orders", good, delay.After(0)),
		`notify "true"`:                schedule(outbox.New(outbox.MySQL, outbox.WithNotify()), "orders", good, delay.After(0)),
		`tx "nil"`:                     func() error { return box.Cancel(t.Context(), nil, "orders", delay.Ref{ID: "a"}) },
		`id ""`:                        func() error { return box.Cancel(t.Context(), tx, "orders", delay.Ref{}) },
		`key "\n"`: func() error {
			return box.Reschedule(t.Context(), tx, "orders", delay.Ref{ID: "a", Key: "\n"}, delay.After(0))
		},
		`id "\x00"`: func() error { _, err := box.Get(t.Context(), tx, "orders", delay.Ref{ID: "\x00"}); return err },
		`due "at 1960-`: func() error {
			return box.Reschedule(t.Context(), tx, "orders", delay.Ref{ID: "a"}, delay.At(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)))
		},
	} {
		err := call()
		require.ErrorIs(t, err, delay.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
}

func TestErrorsNameTheTable(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect, outbox.WithTable("missing"))
		_, err := box.Schedule(t.Context(), db.begin(t), "orders", first, delay.After(0))
		require.ErrorContains(t, err, "schedule in table missing: ")
		results, err := box.ScheduleBatch(t.Context(), db.begin(t), "orders", []delay.Request{{Message: first, When: delay.After(0)}, {}})
		require.ErrorContains(t, err, "schedule in table missing: ")
		require.ErrorContains(t, results[0].Err, "schedule in table missing: ")
		require.ErrorIs(t, results[1].Err, delay.ErrInvalid)
		require.ErrorContains(t, box.Cancel(t.Context(), db.begin(t), "orders", firstRef), "cancel in table missing: ")
		_, err = box.Get(t.Context(), db.begin(t), "orders", firstRef)
		require.ErrorContains(t, err, "get in table missing: ")
		require.NotErrorIs(t, err, delay.ErrNotFound)
	})
}

// TestImports keeps drivers and the bridge's own machinery out of producers.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/delaybridge/delaybridge/delay/outbox/schema")
	for _, denied := range []string{
		"github.com/jackc/", "github.com/lib/pq", "github.com/go-sql-driver/", "github.com/pressly/", "go.uber.org/fx", "github.com/nats-io/",
		"github.com/rabbitmq/", "github.com/segmentio/", "github.com/twmb/", "go.yaml.in/", "github.com/prometheus/",
	} {
		require.False(t, slices.ContainsFunc(deps, func(d string) bool { return strings.HasPrefix(d, denied) }), denied)
	}
}

// TestNoPool: a pool is no transaction, and what is written through it would be there
// although the caller's transaction is rolled back. So none compiles in its place; it may
// be read through.
func TestNoPool(t *testing.T) {
	t.Parallel()
	transaction := reflect.TypeFor[outbox.Tx]()
	assert.False(t, reflect.TypeFor[*sql.DB]().Implements(transaction))
	assert.False(t, reflect.TypeFor[*sql.Conn]().Implements(transaction))
	assert.True(t, reflect.TypeFor[*sql.Tx]().Implements(transaction))
	assert.True(t, reflect.TypeFor[*outbox.Tracked]().Implements(transaction))
	assert.True(t, reflect.TypeFor[*sql.DB]().Implements(reflect.TypeFor[outbox.DB]()))
}
