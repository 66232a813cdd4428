package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the drivers of both databases
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	sdk "github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/internal/poller"
)

const wipeQueue = "orders"

var wipeBody = bytes.Repeat([]byte("b"), 256)

func wipeID(i int) string    { return fmt.Sprintf("w-%024d", i) }
func wipeToken(i int) string { return fmt.Sprintf("~%015x", i) }

// wipeWorld is a database with an outbox, and a Redis.
type wipeWorld struct {
	dialect  schema.Dialect
	redis    *service.Server
	database *service.Server
	rdb      *redis.Client
	db       *sql.DB
	box      *sdk.Outbox
	shards   int
	due      time.Time
	events   *events
	watch    *watch
	log      *slog.Logger
}

func newWipeWorld(ctx context.Context, kind string, shards int) (*wipeWorld, error) {
	w := &wipeWorld{shards: shards, due: time.Now().Add(24 * time.Hour).Truncate(time.Second), events: &events{}, watch: newWatch()}
	w.log = slog.New(eventLog{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}), w.events})
	var err error
	driver, start, dialect := "pgx", service.StartPostgres, sdk.PostgreSQL
	if w.dialect = schema.Dialect(kind); w.dialect == schema.MySQL {
		driver, start, dialect = "mysql", service.StartMariaDB, sdk.MySQL
	}
	w.box = sdk.New(dialect)
	if w.database, err = start(ctx, ""); err != nil {
		return nil, err
	}
	if w.redis, err = service.StartRedis(ctx); err != nil {
		w.database.Close()
		return nil, err
	}
	options, err := redis.ParseURL(w.redis.URL())
	if err != nil {
		return nil, err
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	w.rdb = redis.NewClient(options)
	if w.db, err = sql.Open(driver, w.database.URL()); err != nil {
		return nil, err
	}
	statements, err := schema.Up(w.dialect, schema.DefaultTable)
	for _, s := range statements {
		_, failed := w.db.ExecContext(ctx, s)
		err = errors.Join(err, failed)
	}
	return w, err
}

func (w *wipeWorld) close() {
	_, _ = w.db.Close(), w.rdb.Close()
	w.redis.Close()
	w.database.Close()
}

func (w *wipeWorld) layout() store.Layout {
	return store.Layout{Shards: w.shards, Sink: message.NATS, MaxMessage: message.DefaultMaxSize}
}

// fill writes rows that say that Redis has their messages.
func (w *wipeWorld) fill(ctx context.Context, count int) error {
	text := "INSERT INTO delay_outbox (queue, message_id, status, token, topic, body, due_ms) SELECT 'orders', 'w-' || lpad(n::text, 24, '0'), 1," +
		" '~' || lpad(to_hex(n), 15, '0'), 'topic', repeat('b', 256)::bytea, %d FROM generate_series(%d, %d) n"
	if w.dialect == schema.MySQL {
		text = "INSERT INTO delay_outbox (queue, message_id, status, token, topic, body, due_ms) SELECT 'orders', CONCAT('w-', LPAD(seq, 24, '0')), 1," +
			" CONCAT('~', LPAD(LOWER(HEX(seq)), 15, '0')), 'topic', REPEAT('b', 256), %d FROM seq_%d_to_%d"
	}
	const step = 100_000
	for start := 0; start < count; start += step {
		if _, err := w.db.ExecContext(ctx, fmt.Sprintf(text, w.due.UnixMilli(), start, min(count, start+step)-1)); err != nil {
			return err
		}
	}
	analyze := "ANALYZE delay_outbox"
	if w.dialect == schema.MySQL {
		analyze = "ANALYZE TABLE delay_outbox"
	}
	_, err := w.db.ExecContext(ctx, analyze)
	return err
}

// inChunks works on all numbers up to count, as an audit would.
func inChunks(count int, work func(start, end int) error) error {
	var group errgroup.Group
	group.SetLimit(4)
	for start := 0; start < count; start += 1000 {
		group.Go(func() error { return work(start, min(count, start+1000)) })
	}
	return group.Wait()
}

// wipeBridge is what a bridge runs for one queue with an outbox.
type wipeBridge struct {
	cancel context.CancelFunc
	group  *errgroup.Group
	poller *poller.Poller
	sink   *countingSink
	db     *table.Database
	once   sync.Once

	mu  sync.Mutex
	err error
}

// ackedStore hands late acknowledgements to the settler.
type ackedStore struct {
	*store.Shard
	settler *settler.Settler
}

// Settle is that of the shard.
func (s ackedStore) Settle(ctx context.Context, settlement message.Settlement) (bool, error) {
	stale, err := s.Shard.Settle(ctx, settlement)
	if err == nil && (stale || settlement.Repeated) {
		var rows []store.RowFate
		for i, v := range settlement.Verdicts {
			if m := &settlement.Claim.Messages[i]; v.Verb == message.VerbAck {
				rows = append(rows, store.RowFate{Token: m.Token, ID: m.ID, Key: m.Key})
			}
		}
		s.settler.Acknowledged(wipeQueue, rows)
	}
	return stale, err
}

func (w *wipeWorld) startBridge(ctx context.Context) (*wipeBridge, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &wipeBridge{cancel: cancel}
	var err error
	if b.db, err = table.Open(table.Config{Dialect: w.dialect, Source: sqldb.Plain(w.database.URL()), Trace: w.watch.note}); err != nil {
		cancel()
		return nil, err
	}
	var settling *settler.Settler
	q := store.New(w.rdb, "delay", wipeQueue).WithLedger(func(shard int) { settling.Notify(wipeQueue, shard) })
	shards := make([]int, w.shards)
	for i := range shards {
		shards[i] = i
	}
	settling, errSettler := settler.New(settler.Config{
		Databases: []settler.Database{{Database: b.db}}, Logger: w.log,
		Queues: []settler.Queue{{Name: wipeQueue, Store: q.Rows(), Held: func() []int { return shards }}},
	})
	loaded := outbox.Queue{Name: wipeQueue, Store: outbox.NewStore(q.Rows()), Sink: message.NATS, MaxMessage: message.DefaultMaxSize}
	auditing, errAuditor := auditor.New(auditor.Config{
		Databases: []*table.Database{b.db}, Queues: []auditor.Queue{{Queue: loaded}}, Flush: settling.Flush, Logger: w.log,
	})
	relaying, errRelay := relay.New(relay.Config{
		Database: b.db, Queues: []outbox.Queue{loaded}, Clock: q.Clock, Logger: w.log,
	})
	makeQueue := func(ctx context.Context) error {
		_, err := q.Layouts().Ensure(ctx, w.layout())
		auditing.Suspect(wipeQueue)
		return err
	}
	sink := &countingSink{published: map[string][]time.Time{}}
	b.poller, err = poller.New(poller.Config{
		Queue: wipeQueue, Instance: "figure-1", Shards: shards,
		Store: func(shard int) poller.Store { return ackedStore{q.Shard(shard), settling} },
		Sink:  poller.Sink{Sink: sink, Name: "counting"},
		Hooks: poller.Hooks{OnNoLayout: func(ctx context.Context, _ int) { _ = makeQueue(ctx) }},
	})
	if err = errors.Join(err, errSettler, errAuditor, errRelay); err == nil {
		err = makeQueue(ctx)
	}
	if err == nil {
		err = b.poller.Start(ctx)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	b.sink, w.events.sink = sink, sink
	b.group, ctx = errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{settling.Run, auditing.Run, relaying.Run} {
		b.group.Go(func() error {
			err := run(ctx)
			b.mu.Lock()
			b.err = errors.Join(b.err, err)
			b.mu.Unlock()
			return err
		})
	}
	return b, nil
}

func (b *wipeBridge) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *wipeBridge) stop(ctx context.Context) {
	b.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = b.poller.Stop(ctx)
		b.cancel()
		_ = b.group.Wait()
		_ = b.db.Close()
	})
}
