package runner_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestOutboxes from their start to their end: tables that are made late are used, and the row of a
// message that is acknowledged while the queues drain says so in the end.
func TestOutboxes(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	p := newProcess(t, testenv.Redis(t), ", compensation: off", fmt.Sprintf("outbox: {driver: postgres, dsn: %q}", dsn))
	p.broker.hold = make(chan struct{})
	outboxes, err := runner.NewOutboxes(runner.OutboxesConfig{
		Config: p.config, Queues: p.Queues, Sinks: map[string]sinks.Sink{"events": p.broker}, Metrics: p.metrics,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	p.Start(t.Context())
	outboxes.Start(t.Context())
	isFit := func() bool { return outboxes.Checks()[0].OK }
	require.Eventually(t, func() bool { return !isFit() }, time.Minute, 10*time.Millisecond, "there is no table")

	db, err := sqldb.Open(schema.Postgres, dsn)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	tables, err := migrate.New(db, schema.Postgres, schema.DefaultTable)
	require.NoError(t, err)
	_, err = tables.Up(t.Context())
	require.NoError(t, err)
	require.Eventually(t, isFit, time.Minute, 10*time.Millisecond)

	box, ref := outbox.New(outbox.PostgreSQL), delay.Ref{ID: "a"}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = box.Schedule(t.Context(), tx, "orders", delay.Message{ID: ref.ID, Topic: "t"}, delay.After(0))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, ref.ID, <-p.broker.published)

	outboxes.Halt()
	drained := make(chan error, 1)
	go func() { drained <- p.Stop(t.Context()) }()
	close(p.broker.hold)
	require.NoError(t, <-drained)
	outboxes.Finish(t.Context())
	require.NoError(t, outboxes.Close())
	row, err := box.Get(t.Context(), db, "orders", ref)
	require.NoError(t, err)
	assert.Equal(t, outbox.Published, row.State)
}
