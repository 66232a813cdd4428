package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

const (
	// relayedRows go through the outbox before the lateness is measured, heldRate
	// messages a second go through it then.
	relayedRows = 300_000
	heldRate    = 50
	// quiet is for how long nothing happens in between.
	quiet = 15 * time.Second
)

// snapshotFigure compares the lateness of a few messages a second after 300,000 others
// have gone through the outbox while somebody held a snapshot of the database, as a
// dump does, with that of a database of which nobody holds one. Both are measured at the
// same time, so that what else the machine does counts for both.
func snapshotFigure(ctx context.Context, r run) error {
	var problems []error
	for name := range strings.SplitSeq(r.databases, ",") {
		if err := r.snapshot(ctx, name); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func (r run) snapshot(ctx context.Context, name string) error {
	held, err := r.sized(ctx, "held", name)
	if err != nil {
		return err
	}
	defer held.close()
	free, err := r.sized(ctx, "free", name)
	if err != nil {
		return err
	}
	defer free.close()
	held.say("%s", held.d.version)
	// A snapshot needs a row to look at, and the tables their statistics.
	for _, s := range []*sized{held, free} {
		if err := s.fillFar(ctx); err != nil {
			return err
		}
	}
	release, err := held.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, s := range []*sized{held, free} {
		stop, err := carry(ctx, s.w, s.d, r.shards, s.watch.note, s.watch.audited)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }()
	}
	if err := together(ctx, free, held, func(ctx context.Context, s *sized) error { return s.passThrough(ctx) }); err != nil {
		return err
	}
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	return together(ctx, free, held, func(ctx context.Context, s *sized) error { return s.part(ctx, "later", r.window, time.Millisecond) })
}

// fillFar writes a few rows that are not due meanwhile.
func (s *sized) fillFar(ctx context.Context) error {
	far := filling{
		queue: s.w.Store().Name(), ids: "far", topic: "far", count: 1000, body: 32,
		first: time.Now().Add(6 * time.Hour), over: time.Hour,
	}
	return s.d.fill(ctx, far)
}

// passThrough has rows that are due go all the way.
func (s *sized) passThrough(ctx context.Context) error {
	begin := time.Now()
	topic := s.w.Topic + "-relayed"
	if err := s.w.Broker.MakeTopic(ctx, topic); err != nil {
		return err
	}
	count := cmp.Or(s.run.count, relayedRows)
	due := filling{queue: s.w.Store().Name(), ids: "relayed", topic: topic, count: count, body: 32, first: begin, over: 10 * time.Second}
	if err := s.d.fill(ctx, due); err != nil {
		return err
	}
	for {
		n, err := s.d.number(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE topic = '%s' AND status < 2", schema.DefaultTable, topic))
		if err != nil {
			return err
		}
		if n == 0 {
			s.say("%d rows went through in %s", count, time.Since(begin).Round(time.Second))
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}
