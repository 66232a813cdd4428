package app

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestWipedRedis empties Redis below a bridge that has the rights of its role there
// and no others: what was stored is put back and published.
func TestWipedRedis(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	d := newDatabaseFirst(t, schema.Postgres, testenv.Postgres(t), "")
	d.config.Redis.URL = server.URL()
	root, err := d.config.Redis.Open("root")
	require.NoError(t, err)
	defer func() { assert.NoError(t, root.Close()) }()
	d.config.Prefix = "delay"
	allow(t, root, rights.Bridge, rights.Setup{Prefix: "delay"})
	require.NoError(t, root.ConfigSet(t.Context(), "acllog-max-len", "1000").Err())
	d.config.Redis.Username, d.config.Redis.Password = "bridge", secret.Value("PASSWORD")

	d.migrate()
	d.start()
	var waits, cancelled, moved delay.Ref
	d.commit(func(tx *sql.Tx) {
		waits = d.schedule(tx, "waits", delay.After(30*time.Minute))
		cancelled = d.schedule(tx, "cancelled", delay.After(30*time.Minute))
		moved = d.schedule(tx, "moved", delay.After(30*time.Minute))
	})
	for _, ref := range []delay.Ref{waits, cancelled, moved} {
		d.becomes(ref, "schedule stored")
	}
	d.commit(func(tx *sql.Tx) { require.NoError(t, d.box.Cancel(t.Context(), tx, "orders", cancelled)) })
	d.becomes(cancelled, "cancel cancelled")
	d.eventually("the first comparison is over", func() bool { return d.logs.count("outbox_audited") == 2 })
	require.NoError(t, root.FlushAll(t.Context()).Err())
	d.eventually("what was lost is put back", func() bool {
		n, err := root.HLen(t.Context(), "delay:{orders:0}:msg").Result()
		require.NoError(t, err)
		m, err := root.HLen(t.Context(), "delay:{orders:1}:msg").Result()
		require.NoError(t, err)
		return n+m == 2
	})
	d.commit(func(tx *sql.Tx) {
		require.NoError(t, d.box.Reschedule(t.Context(), tx, "orders", moved, delay.After(0)))
	})
	d.becomes(moved, "reschedule published")
	assert.Equal(t, "schedule stored", d.row(waits))
	assert.Zero(t, d.got.of("cancelled"))
	d.stop()
	denied, err := root.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	for _, entry := range denied {
		t.Errorf("%s was denied %s", entry.Username, entry.Object)
	}
}

// TestStopWithAHangingDatabase: a database that does not answer does not keep the
// bridge from ending in its time, and nothing is lost or doubled by it.
func TestStopWithAHangingDatabase(t *testing.T) {
	t.Parallel()
	for driver, start := range map[schema.Dialect]func(testing.TB, string) *testenv.Server{
		schema.Postgres: testenv.StartPostgres, schema.MySQL: testenv.StartMariaDB,
	} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			server := start(t, "")
			d := newDatabaseFirst(t, driver, server.URL(), "")
			d.config.DrainTimeout = 10 * time.Second // What is published is settled within it, by a busy machine, too.
			d.migrate()
			d.start()
			const rows = 200
			d.commit(func(tx *sql.Tx) {
				for i := range rows {
					d.schedule(tx, fmt.Sprint("m", i), delay.After(time.Duration(i)*10*time.Millisecond))
				}
			})
			d.eventually("some arrive", func() bool { return d.got.of("m20") == 1 })
			server.Pause()
			began := time.Now()
			d.stop()
			assert.Less(t, time.Since(began), d.config.DrainTimeout+stopMargin)
			server.Resume()
			d.start()
			d.eventually("all rows are published", func() bool { return d.count("", "WHERE status = 2") == rows })
			for i := range rows {
				assert.Equal(t, 1, d.got.of(fmt.Sprint("m", i)))
			}
		})
	}
}
