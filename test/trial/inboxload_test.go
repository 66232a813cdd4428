package trial_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/inbox"
	"github.com/delaybridge/delaybridge/test/trial"
)

var inboxLoad = flag.Int("inbox", 0, "how many messages TestInboxLoad applies; without it, that is skipped")

const (
	loadRound     = 250_000
	loadConsumers = 4
	// loadBatch is how many messages a consumer applies in one transaction.
	loadBatch = 250
	// loadAckWait is when NATS delivers again what a dead consumer had.
	loadAckWait = 10 * time.Second
)

// TestInboxLoad: consumers apply messages, many in a transaction, in rounds, while a bridge, Redis, NATS and the database
// die or hang. Consumers die, too: before their commit, and between it and the acknowledgement. The bridge's copies stay in the
// stream. Each message is applied once.
func TestInboxLoad(t *testing.T) {
	if *inboxLoad == 0 {
		t.Skip("runs with -inbox only")
	}
	for database, dialect := range map[string]inbox.Dialect{"postgres": inbox.PostgreSQL, "mariadb": inbox.MySQL} {
		t.Run(database, func(t *testing.T) {
			w := newWorld(t, trial.Options{Redis: persistent("--appendfsync", "always"), Database: database, Shards: 8, Copies: true})
			startBridges(t, w, 1)
			box, err := inbox.New(dialect, "load")
			require.NoError(t, err)
			for statement := range strings.SplitSeq(box.Schema()+"CREATE TABLE applied (id varchar(40) NOT NULL);\n", ";\n") {
				if statement != "" {
					_, err := w.Database.DB.ExecContext(t.Context(), statement)
					require.NoError(t, err, statement)
				}
			}
			load := &inboxLoader{w: w, box: box}
			for done := 0; done < *inboxLoad; done += loadRound {
				load.play(t, min(loadRound, *inboxLoad-done))
			}
		})
	}
}

// inboxLoader plays the rounds of TestInboxLoad.
type inboxLoader struct {
	w     *trial.World
	box   *inbox.Inbox
	round int
	// Of all rounds.
	delivered, copies, died, failed atomic.Int64
}

func (l *inboxLoader) play(t *testing.T, count int) {
	t.Helper()
	began := time.Now()
	w, random := l.w, rand.New(rand.NewPCG(*seed, uint64(l.round))) //nolint:gosec // rounds are few, and a seed makes the run repeatable
	l.round++
	w.Topic = fmt.Sprint("inbox-", l.round)
	require.NoError(t, w.Broker.MakeTopic(t.Context(), w.Topic))
	l.schedule(t, count)

	nc, err := natsgo.Connect(w.Broker.Server().URL(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	consumer, err := js.CreateConsumer(t.Context(), w.Topic, jetstream.ConsumerConfig{
		Durable: "load", AckPolicy: jetstream.AckExplicitPolicy, AckWait: loadAckWait, MaxAckPending: 4 * loadConsumers * loadBatch,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var consumers errgroup.Group
	defer consumers.Wait() //nolint:errcheck // waited for below, unless the test has failed
	defer stop()
	for range loadConsumers {
		random := rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // repeatable
		consumers.Go(func() error { return l.consume(ctx, consumer, random) })
	}

	trouble, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	var happening errgroup.Group
	harmed := make([]string, 2)
	for i, parts := range [][]part{bridgesOf(w), {
		{"redis", w.Redis, true}, {"nats", w.Broker.Server(), true}, {"database", w.Database.Server, true},
	}} {
		random := rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // repeatable
		happening.Go(func() (err error) { harmed[i], err = harm(trouble, parts, random); return err })
	}
	require.NoError(t, happening.Wait(), "%s", harmed)

	require.NoError(t, drained(t, w))
	require.Eventually(t, func() bool {
		info, err := consumer.Info(t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	}, 10*time.Minute, time.Second)
	stop()
	require.NoError(t, consumers.Wait())
	stored, err := w.Broker.Stored(t.Context(), w.Topic)
	require.NoError(t, err)
	var applied, once int
	require.NoError(t, w.Database.DB.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM applied").Scan(&applied, &once))
	t.Logf("round %d: %s; %d scheduled, %d in the stream, %d applied, %s; in all %d deliveries, %d of them copies, %d deaths of consumers, %d failures",
		l.round, harmed, count, stored, applied, time.Since(began).Round(time.Second),
		l.delivered.Load(), l.copies.Load(), l.died.Load(), l.failed.Load())
	assert.Equal(t, count, once, "some messages were not applied")
	require.Equal(t, once, applied, "some messages were applied twice")
	_, err = w.Database.DB.ExecContext(t.Context(), "TRUNCATE TABLE applied")
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), w.Topic))
	deleted, err := l.box.Trim(t.Context(), w.Database.DB, time.Hour)
	require.NoError(t, err)
	if deleted > 0 {
		t.Log(deleted, "old notes deleted")
	}
}

// schedule has the messages fall due within the 30 seconds of trouble, and those that take longer to schedule at once.
func (l *inboxLoader) schedule(t *testing.T, count int) {
	t.Helper()
	begin := time.Now().Add(15 * time.Second)
	var callers errgroup.Group
	callers.SetLimit(4)
	for from := 0; from < count; from += 500 {
		callers.Go(func() error {
			var requests []delay.Request
			for i := from; i < min(from+500, count); i++ {
				requests = append(requests, delay.Request{
					Message: delay.Message{ID: fmt.Sprint(l.round, "-", i), Topic: l.w.Topic, Body: []byte("an order has expired")},
					When:    delay.At(begin.Add(time.Duration(i%30_000) * time.Millisecond)),
				})
			}
			results, err := l.w.Client.ScheduleBatch(t.Context(), requests)
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			return err
		})
	}
	require.NoError(t, callers.Wait())
}

// consume applies what arrives, until ctx ends. What failed, and what a death left, NATS delivers again.
func (l *inboxLoader) consume(ctx context.Context, consumer jetstream.Consumer, random *rand.Rand) error {
	for ctx.Err() == nil {
		batch, err := consumer.Fetch(loadBatch, jetstream.FetchMaxWait(time.Second))
		if err != nil { // NATS is away.
			_ = trial.Sleep(ctx, 100*time.Millisecond)
			continue
		}
		var messages []jetstream.Msg
		for m := range batch.Messages() {
			messages = append(messages, m)
		}
		if len(messages) == 0 {
			continue
		}
		fate := random.IntN(20)
		limited, cancel := context.WithTimeout(ctx, loadAckWait)
		err = l.apply(limited, messages, fate == 0)
		cancel()
		switch l.delivered.Add(int64(len(messages))); {
		case errors.Is(err, errDied):
			l.died.Add(1)
		case err != nil:
			l.failed.Add(1)
			_ = trial.Sleep(ctx, 100*time.Millisecond) // The database is away.
		case fate == 1:
			l.died.Add(1) // After the commit.
		default:
			for _, m := range messages {
				_ = m.Ack()
			}
		}
	}
	return nil
}

// apply notes and applies messages in one transaction.
func (l *inboxLoader) apply(ctx context.Context, messages []jetstream.Msg, dies bool) error {
	tx, err := l.w.Database.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // Has no effect after the commit.
	var rows []string
	for _, m := range messages {
		delivery, err := delay.ReadHeaders(m.Headers().Get)
		if err != nil {
			return err
		}
		first, err := l.box.Record(ctx, tx, delivery.UID)
		if err != nil {
			return err
		}
		if first {
			rows = append(rows, "('"+delivery.ID+"')") // An id of this test needs no quoting.
		}
	}
	if len(rows) > 0 {
		if _, err := tx.ExecContext(ctx, "INSERT INTO applied VALUES "+strings.Join(rows, ", ")); err != nil {
			return err
		}
	}
	if dies {
		return errDied
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	l.copies.Add(int64(len(messages) - len(rows)))
	return nil
}
