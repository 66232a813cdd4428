package outbox_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const benchRows = 100

// idleTx is a database that does nothing: what is left is the package's own part.
type idleTx struct{ sql.Result }

func (idleTx) ExecContext(context.Context, string, ...any) (sql.Result, error) { return idleTx{}, nil }
func (idleTx) ScanRow(context.Context, string, []any, ...any) error            { return nil }
func (idleTx) Commit() error                                                   { return nil }
func (idleTx) RowsAffected() (int64, error)                                    { return benchRows, nil }

func BenchmarkScheduleBatch(b *testing.B) {
	requests := make([]delay.Request, benchRows)
	for i := range requests {
		requests[i] = delay.Request{
			Message: delay.Message{ID: "order-" + strconv.Itoa(i), Topic: "order.timeout", Body: make([]byte, 256)}, When: delay.After(time.Hour),
		}
	}
	for name, dialect := range map[string]outbox.Dialect{"postgres": outbox.PostgreSQL, "mysql": outbox.MySQL} {
		b.Run(name, func(b *testing.B) {
			box := outbox.New(dialect)
			b.ReportAllocs()
			for b.Loop() {
				_, err := box.ScheduleBatch(b.Context(), idleTx{}, "orders", requests)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkTransaction has a transaction a call, on real servers. "new" has ids
// that are not there, "ulid" has none, and "there" has ids that are there.
func BenchmarkTransaction(b *testing.B) {
	for name, open := range map[string]func() *database{
		"postgres": func() *database { return openSQL(b, "pgx", outbox.PostgreSQL, testenv.Postgres(b)) },
		"mariadb":  func() *database { return openSQL(b, "mysql", outbox.MySQL, testenv.MariaDB(b)) },
	} {
		db := open()
		db.migrate(b)
		for _, size := range []int{1, benchRows} {
			for _, ids := range []string{"new", "ulid", "there"} {
				b.Run(name+"/"+ids+"-"+strconv.Itoa(size), func(b *testing.B) { benchTransactions(b, db, size, ids) })
			}
		}
	}
}

func benchTransactions(b *testing.B, db *database, size int, ids string) {
	db.run(b, "TRUNCATE TABLE delay_outbox")
	box, round := outbox.New(db.dialect), 0
	requests := make([]delay.Request, size)
	schedule := func() {
		round++
		for i := range requests {
			m := delay.Message{Topic: "order.timeout", Body: make([]byte, 256)}
			switch ids {
			case "new":
				m.ID = "order-" + strconv.Itoa(round) + "-" + strconv.Itoa(i)
			case "there":
				m.ID = "order-" + strconv.Itoa(i)
			}
			m.Key = m.ID
			requests[i] = delay.Request{Message: m, When: delay.After(time.Hour)}
		}
		tx, err := db.BeginTx(b.Context(), nil)
		require.NoError(b, err)
		_, err = box.ScheduleBatch(b.Context(), tx, "orders", requests)
		if ids != "there" {
			require.NoError(b, err)
		}
		require.NoError(b, tx.Commit())
	}
	schedule()
	for b.Loop() {
		schedule()
	}
	b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "messages/s")
}
