package trial_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/inbox"
	"github.com/delaybridge/delaybridge/test/trial"
)

var errDied = errors.New("died before the commit")

// TestInbox: a consumer with an inbox is stopped again and again amid its transactions, and each time it gets
// the whole topic once more, while bridges, Redis and the broker die or hang. Each message is applied once.
func TestInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, trial.Options{Redis: persistent("--appendfsync", "always"), Database: "postgres"})
	startBridges(t, w, 1)
	box, err := inbox.New(inbox.PostgreSQL, "trial")
	require.NoError(t, err)
	db := w.Database.DB
	for statement := range strings.SplitSeq(box.Schema()+"CREATE TABLE applied (id text NOT NULL);\n", ";\n") {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	var delivered, copies, broken int
	random := rand.New(rand.NewPCG(*seed, 9)) //nolint:gosec // a seed makes the run repeatable
	apply := func(ctx context.Context, r trial.Record, dies bool) error {
		delivery, err := delay.ReadHeaders(func(name string) string { return r.Headers[name] })
		if err != nil {
			return err
		}
		first, err := box.Once(ctx, db, delivery.UID, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO applied VALUES ($1)", r.ID); err != nil || !dies {
				return err
			}
			return errDied
		})
		switch delivered++; {
		case err != nil:
			broken++
		case !first:
			copies++
		}
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	churn := trial.Steady{
		Client: w.Client, Topic: w.Topic, Rate: 50, Spread: 5 * time.Second, Keys: 20, Seed: *seed, IDs: "m", Outages: true,
	}
	var happening errgroup.Group
	happening.Go(func() error { return churn.Run(ctx, w.Ledger) })
	for i, parts := range [][]part{bridgesOf(w), {{"redis", w.Redis, true}, {w.Broker.Name(), w.Broker.Server(), true}}} {
		happening.Go(func() error {
			_, err := harm(ctx, parts, rand.New(rand.NewPCG(*seed, uint64(i)))) //nolint:gosec // a seed makes the run repeatable
			return err
		})
	}
	happening.Go(func() error {
		for ctx.Err() == nil {
			life, stop := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(2*time.Second))))
			_ = w.Broker.Consume(life, w.Topic, func(r trial.Record) { _ = apply(life, r, random.IntN(10) == 0) })
			stop()
		}
		return nil
	})
	require.NoError(t, happening.Wait())

	drained, end := context.WithTimeout(t.Context(), 3*time.Minute)
	defer end()
	_, err = w.Drained(drained)
	require.NoError(t, err)
	stop := w.Consume(t.Context()) // What the topic has.
	w.Ledger.Await(3*time.Minute, time.Second)
	require.NoError(t, stop())
	stored, err := w.Broker.Stored(drained, w.Topic)
	require.NoError(t, err)
	last, done := context.WithCancel(drained)
	defer done()
	var failure error
	ids, seen := map[string]bool{}, int64(0)
	err = w.Broker.Consume(last, w.Topic, func(r trial.Record) { // The last consumer lives.
		failure = errors.Join(failure, apply(drained, r, false))
		ids[r.ID] = true
		if seen++; seen >= stored {
			done()
		}
	})
	require.NoError(t, errors.Join(err, failure))
	report := w.Ledger.Report()
	var applied, once int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM applied").Scan(&applied, &once))
	t.Logf("%s; %d deliveries, %d of them copies, %d broken off; %d applied", report, delivered, copies, broken, applied)
	assert.Equal(t, once, applied, "some messages were applied twice")
	assert.Equal(t, len(ids), once, "some messages were not applied")
	assert.Zero(t, report.Lost)
	assert.NotZero(t, copies)
	assert.NotZero(t, broken)
}
