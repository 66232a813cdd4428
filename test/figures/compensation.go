package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	// compensationLimit is within what time after Redis is back it has what was
	// compensated.
	compensationLimit = time.Second
	// compensationWidth is how many producers write at the same time.
	compensationWidth = 100
	// calmDown is more than anything takes once Redis is back.
	calmDown = 10 * time.Second
)

// compensationFigure kills Redis, and lets the broker carry what producers could
// not write: rows of transactions, and messages without a database. The relay
// would not look for an hour.
func compensationFigure(ctx context.Context, r run) error {
	w, err := flow.NewWorld(ctx, flow.Options{
		Binary: r.binary, Broker: r.broker, Shards: r.shards, Copies: true,
		Database: "postgres", Outbox: "poll: 1h, horizon: 24h",
		Redis: []string{"--appendonly", "yes", "--appendfsync", "always"},
	})
	if w != nil {
		defer w.Close()
	}
	if err != nil {
		return err
	}
	c := &compensating{run: r, world: w, count: cmp.Or(r.count, 200) / 2 * 2, longest: map[string]time.Duration{}}
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer c.hangUp()
	stop := w.Consume(ctx)
	err = c.measure(ctx)
	return errors.Join(err, stop())
}

// compensating is one run of the figure.
type compensating struct {
	run    run
	world  *flow.World
	count  int
	box    *outbox.Outbox
	client *delay.Client
	ends   []func()

	mu      sync.Mutex
	longest map[string]time.Duration // by a producer's call
}

func (c *compensating) connect(ctx context.Context) error {
	box, end, err := c.world.Outbox(ctx)
	if err != nil {
		return err
	}
	c.box, c.ends = box, append(c.ends, end)
	publish, end, err := c.world.Broker.Publisher(ctx)
	if err != nil {
		return err
	}
	c.ends = append(c.ends, end)
	c.client, err = delay.NewClient(c.world.RDB, c.world.Queue(), delay.WithPrefix(c.world.Prefix()), delay.WithCompensation(publish))
	return err
}

func (c *compensating) hangUp() {
	for _, end := range c.ends {
		end()
	}
}

func (c *compensating) measure(ctx context.Context) error {
	// One of each before: the relay has looked once, and all connections are there.
	due := time.Now().Add(time.Second).Truncate(time.Millisecond)
	if err := errors.Join(c.commit(ctx, "row-before", due), c.schedule(ctx, "message-before", due)); err != nil {
		return err
	}
	if err := c.arrived(ctx, 2); err != nil {
		return err
	}
	if err := c.world.Redis.Kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := c.produce(ctx, began.Add(2*c.run.window+calmDown).Truncate(time.Millisecond)); err != nil {
		return err
	}
	if err := pause(ctx, c.run.window-time.Since(began)); err != nil {
		return err
	}
	back, err := c.revive(ctx)
	if err != nil {
		return err
	}
	took, err := c.stored(ctx, back)
	if err != nil {
		return err
	}
	if err := c.arrived(ctx, 2+c.count); err != nil {
		return err
	}
	report := c.world.Ledger.Report()
	fmt.Printf("compensation  %-8s | %d rows, %d messages while Redis was away for %s, longest schedule %s, push %s | all in Redis %s after it was back |"+
		" arrived %d, lost %d, twice %d, early %d\n", c.run.broker, c.count/2, c.count/2, ms(back.Sub(began)), ms(c.longest["schedule"]), ms(c.longest["push"]), ms(took),
		report.Arrived, report.Lost, report.Duplicates, report.Early)
	if took > compensationLimit || report.Wrong() > 0 || report.Duplicates > 0 {
		return fmt.Errorf("compensations took %s: %s", ms(took), report)
	}
	return nil
}

// produce writes all messages, half of them in transactions.
func (c *compensating) produce(ctx context.Context, due time.Time) error {
	var group errgroup.Group
	group.SetLimit(compensationWidth)
	for i := range c.count / 2 {
		group.Go(func() error { return c.commit(ctx, fmt.Sprint("row-", i), due) })
		group.Go(func() error { return c.schedule(ctx, fmt.Sprint("message-", i), due) })
	}
	return group.Wait()
}

// commit writes a row in a transaction, and pushes it.
func (c *compensating) commit(ctx context.Context, id string, due time.Time) error {
	tx, err := c.world.Database.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	tracked := c.box.Track(tx)
	m := delay.Message{ID: id, Topic: c.world.Topic}
	ref, err := c.box.Schedule(ctx, tracked, c.world.Queue(), m, delay.At(due))
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	begin := time.Now()
	err = tracked.Push(ctx)
	c.took("push", time.Since(begin))
	c.world.Ledger.Scheduled(m, delay.Result{Ref: ref, DueAt: due})
	return err
}

// schedule writes a message without a database.
func (c *compensating) schedule(ctx context.Context, id string, due time.Time) error {
	m, begin := delay.Message{ID: id, Topic: c.world.Topic}, time.Now()
	result, err := c.client.Schedule(ctx, m, delay.At(due))
	c.took("schedule", time.Since(begin))
	if err == nil {
		c.world.Ledger.Scheduled(m, result)
	}
	return err
}

func (c *compensating) took(call string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest[call] = max(c.longest[call], d)
}

// revive starts Redis and returns when it first answered.
func (c *compensating) revive(ctx context.Context) (back time.Time, err error) {
	started := make(chan error, 1)
	go func() { started <- c.world.Redis.Start(ctx) }()
	for {
		rdb, err := c.connection()
		if err == nil {
			err = rdb.Ping(ctx).Err()
			_ = rdb.Close()
		}
		if err == nil {
			back = time.Now()
			return back, <-started
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return back, errors.Join(err, <-started)
		}
	}
}

// connection is a client that has seen no outage: one that has tries again after
// a second only.
func (c *compensating) connection() (*redis.Client, error) {
	options, err := redis.ParseURL(c.world.Redis.URL())
	if err != nil {
		return nil, err
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	return redis.NewClient(options), nil
}

// stored waits until all messages wait in Redis, and says how long that took.
func (c *compensating) stored(ctx context.Context, back time.Time) (time.Duration, error) {
	rdb, err := c.connection()
	if err != nil {
		return 0, err
	}
	defer func() { _ = rdb.Close() }()
	q := store.New(rdb, c.world.Prefix(), c.world.Queue())
	if _, err := q.LoadLayout(ctx); err != nil {
		return 0, err
	}
	for {
		var waiting int64
		for shard := range c.run.shards {
			stats, err := inspect.NewAdmin(q).Stats(ctx, shard)
			if err != nil {
				return 0, err
			}
			waiting += stats.Waiting
		}
		if waiting == int64(c.count) {
			return time.Since(back), nil
		}
		if time.Since(back) > calmDown {
			return 0, fmt.Errorf("of %d messages only %d wait in Redis", c.count, waiting)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// arrived waits until so many messages have arrived.
func (c *compensating) arrived(ctx context.Context, count int) error {
	for limit := time.Now().Add(c.run.window + 3*calmDown); c.world.Ledger.Arrived() < count; {
		if time.Now().After(limit) {
			return fmt.Errorf("of %d messages only %d arrived", count, c.world.Ledger.Arrived())
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
