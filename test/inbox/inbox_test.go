// Package inbox_test holds package delay/inbox against real databases. It is here because the SDK's module has no
// driver.
package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/inbox"
	"github.com/delaybridge/delaybridge/delay/outbox/pgxtx"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// consumer is a database with an inbox, and a table of what has been applied.
type consumer struct {
	*outboxtest.Database
	*inbox.Inbox
}

func newConsumer(t *testing.T, d *outboxtest.Database, options ...inbox.Option) *consumer {
	t.Helper()
	dialect := inbox.MySQL
	if d.IsPostgres() {
		dialect = inbox.PostgreSQL
	}
	box, err := inbox.New(dialect, "mailer", options...)
	require.NoError(t, err)
	for range 2 { // A migration may be repeated.
		for statement := range strings.SplitSeq(box.Schema(), ";\n") {
			if statement != "" {
				_, err := d.SQL.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
		}
	}
	_, err = d.SQL.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS applied (uid varchar(100) NOT NULL)")
	require.NoError(t, err)
	return &consumer{d, box}
}

// apply is what the consumer does with a message.
func (c *consumer) apply(ctx context.Context, uid string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, c.Text("INSERT INTO applied VALUES (?)"), uid)
		return err
	}
}

func (c *consumer) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, c.SQL.QueryRowContext(t.Context(), c.Text(query), args...).Scan(&n))
	return n
}

var errApply = errors.New("not today")

func TestOnce(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		c, ctx := newConsumer(t, d), t.Context()
		_, err := c.Once(ctx, c.SQL, "u1", func(tx *sql.Tx) error {
			require.NoError(t, c.apply(ctx, "u1")(tx))
			return errApply
		})
		require.ErrorIs(t, err, errApply)
		require.Zero(t, c.count(t, "SELECT count(*) FROM applied"))
		for _, want := range []bool{true, false, false} {
			first, err := c.Once(ctx, c.SQL, "u1", c.apply(ctx, "u1"))
			require.NoError(t, err)
			require.Equal(t, want, first)
		}
		first, err := c.Once(ctx, c.SQL, "U1", c.apply(ctx, "U1"))
		require.NoError(t, err)
		require.True(t, first, "another uid, though a collation may say otherwise")
		require.Equal(t, 2, c.count(t, "SELECT count(*) FROM applied"))

		other, err := inbox.New(inbox.Dialect(map[bool]string{true: "postgres", false: "mysql"}[d.IsPostgres()]), "biller")
		require.NoError(t, err)
		first, err = other.Once(ctx, c.SQL, "u1", c.apply(ctx, "u1"))
		require.NoError(t, err)
		require.True(t, first, "another consumer")
	})
}

// TestCopiesAtOnce: copies arrive at once, some of their transactions are rolled back, some lose their
// connection, and each message is delivered until it is done. Each is applied once.
func TestCopiesAtOnce(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		c := newConsumer(t, d)
		const messages, copies = 60, 6
		c.SQL.SetMaxOpenConns(12)
		var refused, failed atomic.Int64
		var group errgroup.Group
		for n := range copies {
			group.Go(func() error {
				random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // copies are few
				for _, i := range random.Perm(messages) {
					uid := fmt.Sprint("u", i)
					for done := false; !done; {
						_, err := c.Once(t.Context(), c.SQL, uid, func(tx *sql.Tx) error {
							if err := c.apply(t.Context(), uid)(tx); err != nil {
								return err
							}
							switch random.IntN(4) {
							case 0:
								return errApply
							case 1:
								return c.cut(t.Context(), tx)
							}
							return nil
						})
						if errors.Is(err, errApply) {
							refused.Add(1)
						} else if err != nil {
							failed.Add(1)
						}
						if done = err == nil; !done && t.Context().Err() != nil {
							return t.Context().Err()
						}
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, messages, c.count(t, "SELECT count(*) FROM applied"))
		require.Equal(t, messages, c.count(t, "SELECT count(DISTINCT uid) FROM applied"))
		require.NotZero(t, refused.Load())
		require.NotZero(t, failed.Load(), "no connection was lost")
	})
}

// cut has the server end the connection of the transaction.
func (c *consumer) cut(ctx context.Context, tx *sql.Tx) error {
	own, end := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
	if !c.IsPostgres() {
		own, end = "SELECT connection_id()", "KILL %d"
	}
	var id int64
	if err := tx.QueryRowContext(ctx, own).Scan(&id); err != nil {
		return err
	}
	_, err := c.SQL.ExecContext(ctx, fmt.Sprintf(end, id))
	return err
}

// TestCopyWaits: while the first transaction is open, a copy waits for its end, and is applied if that is rolled
// back.
func TestCopyWaits(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		c, ctx := newConsumer(t, d), t.Context()
		for _, commits := range []bool{true, false} {
			uid := fmt.Sprint("u-", commits)
			tx, err := c.SQL.BeginTx(ctx, nil)
			require.NoError(t, err)
			first, err := c.Record(ctx, tx, uid)
			require.NoError(t, err)
			require.True(t, first)

			copied := make(chan bool, 1)
			var group errgroup.Group
			group.Go(func() error {
				first, err := c.Once(ctx, c.SQL, uid, c.apply(ctx, uid))
				copied <- first
				return err
			})
			waits := "SELECT count(*) FROM pg_locks WHERE NOT granted"
			if !c.IsPostgres() {
				waits = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
			}
			require.Eventually(t, func() bool { return c.count(t, waits) > 0 }, time.Minute, 20*time.Millisecond)
			if commits {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
			require.NoError(t, group.Wait())
			require.Equal(t, !commits, <-copied)
		}
	})
}

func TestTrim(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		c, ctx := newConsumer(t, d), t.Context()
		const old, young = 2500, 3
		for i := range old + young {
			_, err := c.Once(ctx, c.SQL, fmt.Sprint("u", i), func(*sql.Tx) error { return nil })
			require.NoError(t, err)
			if i == old-1 {
				age := "UPDATE delay_inbox SET noted_at = now() - interval '26 hours'"
				if !c.IsPostgres() {
					age = "UPDATE delay_inbox SET noted_at = UTC_TIMESTAMP() - INTERVAL 26 HOUR"
				}
				_, err := c.SQL.ExecContext(ctx, age)
				require.NoError(t, err)
			}
		}
		n, err := c.Trim(ctx, c.SQL, 27*time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = c.Trim(ctx, c.SQL, 25*time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, old, n)
		require.Equal(t, young, c.count(t, "SELECT count(*) FROM delay_inbox"))
		_, err = c.Trim(ctx, c.SQL, time.Minute)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, `keep "1m0s": at least 1h0m0s`)
		require.Equal(t, young, c.count(t, "SELECT count(*) FROM delay_inbox"))
	})
}

// TestPgx: a transaction of pgx does as well.
func TestPgx(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	newConsumer(t, outboxtest.Open(t, "postgres", dsn), inbox.WithTable("public.inbox_of_pgx"))
	box, err := inbox.New(inbox.PostgreSQL, "mailer", inbox.WithTable("public.inbox_of_pgx"))
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	for _, want := range []bool{true, false} {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		first, err := box.Record(t.Context(), pgxtx.Wrap(tx), "u")
		require.NoError(t, err)
		require.Equal(t, want, first)
		require.NoError(t, tx.Commit(t.Context()))
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		dialect         inbox.Dialect
		consumer, table string
		want            string
	}{
		{"oracle", "mailer", "t", `dialect "oracle": postgres or mysql`},
		{inbox.MySQL, "", "t", `consumer "": 1 to 64 bytes`},
		{inbox.MySQL, strings.Repeat("x", 65), "t", `consumer "xxx`},
		{inbox.MySQL, "a\x00", "t", "without a NUL"},
		{inbox.PostgreSQL, "mailer", "t; DROP TABLE t", `table "t; DROP TABLE t": 1 to 41`},
		{inbox.PostgreSQL, "mailer", "a.b.c", `table "a.b.c"`},
	} {
		_, err := inbox.New(test.dialect, test.consumer, inbox.WithTable(test.table))
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, test.want)
	}
	box, err := inbox.New(inbox.PostgreSQL, "mailer")
	require.NoError(t, err)
	for _, uid := range []string{"", strings.Repeat("x", 301), "a\x00b"} {
		_, err := box.Record(t.Context(), nil, uid)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, "uid")
	}
}
