package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	relay "github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	// carryKeep is how long rows are kept: so short that purging is part of what is
	// measured.
	carryKeep = time.Minute
	// carrySettle is how often the rows are told what became of their messages.
	carrySettle = 200 * time.Millisecond
)

// relayed is the world's queue as relay and auditor have it.
func relayed(w *flow.World) relay.Queue {
	return relay.Queue{Name: w.Store().Name(), Store: relay.NewStore(w.Store().Rows()), Sink: message.NATS, MaxMessage: message.DefaultMaxSize}
}

// carry runs relay, settler and auditor in this process, where their statements can
// be watched; the bridge of the world has no outbox, and does the rest. The returned
// function ends them.
func carry(ctx context.Context, w *flow.World, d *database, shards int, note func(relay.Statement)) (stop func() error, err error) {
	db, err := relay.Open(relay.DatabaseConfig{Dialect: d.dialect, DSN: d.dsn, Trace: note})
	if err != nil {
		return nil, err
	}
	queue := relayed(w)
	held := make([]int, shards)
	for i := range held {
		held[i] = i
	}
	r, errRelay := relay.NewRelay(relay.Config{
		Database: db, Clock: w.Store().Clock, Horizon: horizonTime, Keep: carryKeep, Queues: []relay.Queue{queue},
	})
	settler, errSettler := relay.NewSettler(relay.SettlerConfig{
		Databases: []relay.Settled{{Database: db}},
		Queues:    []relay.LedgerQueue{{Name: queue.Name, Store: w.Store().Rows(), Held: func() []int { return held }}},
	})
	auditor, errAuditor := relay.NewAuditor(relay.AuditorConfig{Databases: []*relay.Database{db}, Queues: []relay.AuditedQueue{{Queue: queue}}})
	if err := errors.Join(errRelay, errSettler, errAuditor); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = r.Run(ctx) })
	running.Go(func() { _ = settler.Run(ctx) }) // It returns nil.
	running.Go(func() { _ = auditor.Run(ctx) }) // It returns nil.
	running.Go(func() {
		for pause(ctx, carrySettle) == nil {
			for _, shard := range held {
				settler.Notify(queue.Name, shard)
			}
		}
	})
	return func() error {
		cancel()
		running.Wait()
		return errors.Join(failed, db.Close())
	}, nil
}
