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
	"github.com/delaybridge/delaybridge/internal/config"
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

// TestQueuesChangeBesideAnOutbox: rows of a queue are taken as soon as this bridge has it, by the settings that it
// has then, and say how their messages ended, also those that are acknowledged while it leaves. Rows of others are
// taken all the time, and the outbox is never away.
func TestQueuesChangeBesideAnOutbox(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	more := fmt.Sprintf("outbox: {driver: postgres, dsn: %q}", dsn)
	p := newProcess(t, testenv.Redis(t), ", compensation: off", more)
	with := func(third string) *config.Config {
		orders := ", compensation: off"
		if third != "" {
			orders += "}, third: {shards: 2, compensation: off, " + third
		}
		return p.parse(p.config.Redis.URL, p.config.Prefix, orders, "info", more)
	}
	db, err := sqldb.Open(schema.Postgres, dsn)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	tables, err := migrate.New(db, schema.Postgres, schema.DefaultTable)
	require.NoError(t, err)
	_, err = tables.Up(t.Context())
	require.NoError(t, err)
	outboxes, err := runner.NewOutboxes(runner.OutboxesConfig{
		Config: p.config, Queues: p.Queues, Sinks: map[string]sinks.Sink{"events": p.broker, "other": p.other}, Metrics: p.metrics,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	p.Start(t.Context())
	outboxes.Start(t.Context())

	box := outbox.New(outbox.PostgreSQL)
	write := func(queue, id string) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = box.Schedule(t.Context(), tx, queue, delay.Message{ID: id, Topic: "t"}, delay.After(0))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	}
	state := func(queue, id string) outbox.State {
		row, err := box.Get(t.Context(), db, queue, delay.Ref{ID: id})
		require.NoError(t, err)
		return row.State
	}
	becomes := func(queue, id string, want outbox.State) {
		t.Helper()
		require.Eventually(t, func() bool { return state(queue, id) == want }, patience, 10*time.Millisecond, "%s %s", queue, id)
	}
	others := func(id string) {
		t.Helper()
		write("orders", id)
		assert.Equal(t, id, next(t, p.broker))
		becomes("orders", id, outbox.Published)
		assert.True(t, outboxes.Checks()[0].OK)
	}
	write("third", "before")
	others("a")
	p.change(with("sink: events"))
	assert.Equal(t, "before", next(t, p.broker))
	becomes("third", "before", outbox.Published)
	others("b")

	p.change(with("sink: other"))
	write("third", "restarted")
	assert.Equal(t, "restarted", next(t, p.other))
	becomes("third", "restarted", outbox.Published)
	others("c")

	p.other.hold = make(chan struct{})
	write("third", "held")
	assert.Equal(t, "held", next(t, p.other))
	p.change(with(""))
	others("d")
	assert.Equal(t, outbox.Stored, state("third", "held"))
	close(p.other.hold)
	p.logged("event=queue_removed waiting=0 in_flight=0 dead=0")
	becomes("third", "held", outbox.Published)
	write("third", "after")
	others("e")
	assert.Equal(t, outbox.Pending, state("third", "after"))

	p.change(with("sink: events"))
	assert.Equal(t, "after", next(t, p.broker))
	becomes("third", "after", outbox.Published)
	outboxes.Halt()
	require.NoError(t, p.Stop(t.Context()))
	outboxes.Finish(t.Context())
	require.NoError(t, outboxes.Close())
}
