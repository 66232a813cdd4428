package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	inner "github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
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
func relayed(w *flow.World) inner.Queue {
	return inner.Queue{Name: w.Store().Name(), Store: inner.NewStore(w.Store().Rows()), Sink: message.NATS, MaxMessage: message.DefaultMaxSize}
}

// carry runs relay, settler and auditor in this process, where their statements can
// be watched; the bridge of the world has no outbox, and does the rest. The returned
// function ends them. found is told what the auditor finds; it must be safe for
// concurrent use.
func carry(ctx context.Context, w *flow.World, d *database, shards int, note func(table.Statement), found func(auditor.Counts)) (stop func() error, err error) {
	db, err := table.Open(table.Config{Dialect: d.dialect, Source: sqldb.Plain(d.dsn), Trace: note})
	if err != nil {
		return nil, err
	}
	queue := relayed(w)
	held := make([]int, shards)
	for i := range held {
		held[i] = i
	}
	r, errRelay := relay.New(relay.Config{
		Database: db, Clock: w.Store().Clock, Horizon: horizonTime, Keep: carryKeep, Queues: []inner.Queue{queue},
	})
	s, errSettler := settler.New(settler.Config{
		Databases: []settler.Database{{Database: db}},
		Queues:    []settler.Queue{{Name: queue.Name, Store: w.Store().Rows(), Held: func() []int { return held }}},
	})
	a, errAuditor := auditor.New(auditor.Config{Databases: []*table.Database{db}, Queues: []auditor.Queue{{Queue: queue}}, Observe: found})
	if err := errors.Join(errRelay, errSettler, errAuditor); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = r.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) }) // It returns nil.
	running.Go(func() { _ = a.Run(ctx) }) // It returns nil.
	running.Go(func() {
		for pause(ctx, carrySettle) == nil {
			for _, shard := range held {
				s.Notify(queue.Name, shard)
			}
		}
	})
	return func() error {
		cancel()
		running.Wait()
		return errors.Join(failed, db.Close())
	}, nil
}
