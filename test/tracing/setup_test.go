package tracing_test

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// queue makes clients of a new queue in a real Redis.
func queue(t *testing.T) func(...delay.Option) *delay.Client {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	prefix := testenv.Name(t, "tracing")
	require.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", 4, delay.WithPrefix(prefix)))
	return func(options ...delay.Option) *delay.Client {
		client, err := delay.NewClient(rdb, "orders", append(options, delay.WithPrefix(prefix))...)
		require.NoError(t, err)
		return client
	}
}

// database is a new one with the tables of an outbox.
func database(t *testing.T, driver string, dialect schema.Dialect, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	statements, err := schema.Up(dialect, schema.DefaultTable)
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return db
}
