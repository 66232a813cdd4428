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
)

const benchRows = 100

// idleTx is a database that does nothing: what is left is the package's own part.
type idleTx struct{ sql.Result }

func (idleTx) ExecContext(context.Context, string, ...any) (sql.Result, error) { return idleTx{}, nil }
func (idleTx) ScanRow(context.Context, string, []any, ...any) error            { return nil }
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
