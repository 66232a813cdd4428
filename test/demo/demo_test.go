package main

import (
	"context"
	"database/sql"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDemo runs both halves with the configuration of docker-compose.yml: timeouts arrive, by
// Redis and by the database.
func TestDemo(t *testing.T) {
	t.Parallel()
	redisURL, natsURL, dsn := testenv.StartRedis(t).URL(), testenv.StartNATS(t, "").URL(), testenv.Postgres(t)
	cfg, err := config.Load("../../deploy/compose/bridge.yaml", []string{
		"DELAYBRIDGE__REDIS__URL=" + redisURL, "DELAYBRIDGE__SINKS__EVENTS__URL=" + natsURL,
		"DELAYBRIDGE__OUTBOX__DSN=" + dsn, "DELAYBRIDGE__ADMIN__LISTEN=",
	})
	require.NoError(t, err)
	makeTables(t, dsn)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	arrivals := make(chan string, 1000)
	go func() { ended <- app.Run(ctx, cfg, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	go func() { ended <- consume(ctx, natsURL, func(id, _ string) { arrivals <- id }) }()
	go func() { ended <- produce(ctx, redisURL, dsn) }()
	defer func() {
		cancel()
		for range cap(ended) {
			assert.NoError(t, <-ended)
		}
	}()

	viaRedis, viaDatabase := false, false
	deadline := time.After(2 * time.Minute)
	for !viaRedis || !viaDatabase {
		select {
		case id := <-arrivals:
			number, err := strconv.Atoi(strings.TrimSuffix(id[strings.LastIndex(id, "-")+1:], "/timeout"))
			require.NoError(t, err, id)
			viaRedis, viaDatabase = viaRedis || number%2 == 1, viaDatabase || number%2 == 0
		case <-deadline:
			require.FailNow(t, "did not arrive", "by Redis %v, by the database %v", viaRedis, viaDatabase)
		}
	}
}

func makeTables(t *testing.T, dsn string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	m, err := migrate.New(db, outbox.PostgreSQL, schema.DefaultTable)
	require.NoError(t, err)
	_, err = m.Up(t.Context())
	require.NoError(t, err)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"sell"}, {"produce", "consume"}} {
		assert.ErrorContains(t, run(t.Context(), args), "usage")
	}
}
