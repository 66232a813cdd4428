package table_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheck(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		require.NoError(t, d.Check(t.Context()))
		if d.IsPostgres() {
			d.Exec(t, "ALTER INDEX box_operations RENAME TO other")
		} else {
			d.Exec(t, "ALTER TABLE {t} RENAME KEY box_open TO other")
		}
		lacking := d.Check(t.Context())
		require.True(t, table.IsUnfit(lacking), "%v", lacking)
		require.ErrorContains(t, lacking, "bridge outbox migrate up")
		d.Exec(t, "ALTER TABLE {t} DROP COLUMN maybe")
		err := d.Check(t.Context())
		require.True(t, table.IsUnfit(err), "%v", err)
		other := d.With(t, func(c *table.Config) { c.Table = "nothing" })
		err = other.Check(t.Context())
		require.True(t, table.IsUnfit(err), "%v", err)
		require.ErrorContains(t, err, "bridge outbox migrate up")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = d.Check(ctx)
		require.Error(t, err)
		require.False(t, table.IsUnfit(err))
	})
}
