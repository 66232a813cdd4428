package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	inner "github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/test/flow"
)

const horizonTime = time.Hour

// horizonFigure measures a table of messages that are due over a year, of which
// only those of the next hour are in Redis.
func horizonFigure(ctx context.Context, r run) error {
	var problems []error
	for name := range strings.SplitSeq(r.databases, ",") {
		if err := r.horizon(ctx, name); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// outlooking is one run of the figure.
type outlooking struct {
	run
	w     *flow.World
	d     *database
	watch *watch
	plans []error // those that are not as they must be
}

func (r run) horizon(ctx context.Context, name string) error {
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	d, err := startDatabase(ctx, name)
	if err != nil {
		return err
	}
	defer d.close()
	h := &outlooking{run: r, w: w, d: d, watch: newWatch()}
	for _, step := range []func(context.Context) error{h.fill, h.reach, h.rest, h.explain, h.serve} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return errors.Join(h.plans...)
}

func (h *outlooking) say(format string, args ...any) {
	fmt.Printf("horizon  %-8s %s\n", h.d.name, fmt.Sprintf(format, args...))
}

// fill writes the year.
func (h *outlooking) fill(ctx context.Context) error {
	topic := h.w.Topic + "-far" // Its messages are nobody's: what is measured comes later.
	if err := h.w.Broker.MakeTopic(ctx, topic); err != nil {
		return err
	}
	count, begin := cmp.Or(h.count, 500000), time.Now()
	far := filling{queue: h.w.Store().Name(), ids: "far", topic: topic, count: count, body: 256, first: begin, over: 365 * 24 * time.Hour, mixed: true}
	if err := h.d.fill(ctx, far); err != nil {
		return fmt.Errorf("fill the table: %w", err)
	}
	took := time.Since(begin)
	bytes, err := h.d.size(ctx)
	if err != nil {
		return err
	}
	h.say("%s", h.d.version)
	h.say("%d rows due over a year, written in %s; the table with its indexes takes %d MiB", count, took.Round(time.Second), bytes>>20)
	return nil
}

// reach loads what is due within the horizon, and says what Redis needs for it.
func (h *outlooking) reach(ctx context.Context) error {
	before, err := usedMemory(ctx, h.w)
	if err != nil {
		return err
	}
	stop, err := h.relay(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := h.loaded(ctx); err != nil {
		return errors.Join(err, stop())
	}
	took := time.Since(begin)
	after, err := usedMemory(ctx, h.w)
	totals, errTotals := h.w.Totals(ctx)
	left, errLeft := h.d.number(ctx, "SELECT count(*) FROM "+schema.DefaultTable)
	h.say("Redis has %.1f MiB before, %.1f MiB after: %d messages wait there, %d rows in the table; loaded in %s",
		float64(before)/(1<<20), float64(after)/(1<<20), totals.Waiting, left, took.Round(time.Millisecond))
	return errors.Join(err, errTotals, errLeft, stop())
}

// loaded waits until no row of the next hour is pending.
func (h *outlooking) loaded(ctx context.Context) error {
	until := time.Now().Add(horizonTime - time.Second).UnixMilli()
	for {
		pending, err := h.d.number(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE status = 0 AND load_ms <= %d", schema.DefaultTable, until))
		if err != nil || pending == 0 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// relay runs one until the returned function is called.
func (h *outlooking) relay(ctx context.Context) (stop func() error, err error) {
	d, err := table.Open(table.Config{Dialect: h.d.dialect, Source: sqldb.Plain(h.d.dsn), Trace: h.watch.note})
	if err != nil {
		return nil, err
	}
	r, err := relay.New(relay.Config{
		Database: d, Clock: h.w.Store().Clock, Horizon: horizonTime,
		Queues: []inner.Queue{relayed(h.w)},
	})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-done, d.Close())
	}, nil
}

// rest watches the relay while nothing is due.
func (h *outlooking) rest(ctx context.Context) error {
	stop, err := h.relay(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil { // Its start is no rest.
		return errors.Join(err, stop())
	}
	h.watch.forget()
	err = pause(ctx, h.window)
	h.watch.show(h.say, "nothing due")
	return errors.Join(err, stop())
}

// explain shows how the database runs the relay's statements, with 2,000 rows to
// load. Each is asked for in a transaction that is rolled back.
func (h *outlooking) explain(ctx context.Context) error {
	box := outbox.New(h.d.dialect)
	requests := make([]delay.Request, 2000)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{Topic: h.w.Topic + "-far", Body: make([]byte, 256)}, When: delay.After(horizonTime / 2)}
	}
	err := h.d.transact(ctx, func(tx outbox.Tx) error {
		_, err := box.ScheduleBatch(ctx, tx, h.w.Store().Name(), requests)
		return err
	})
	if err != nil {
		return err
	}
	for _, kind := range h.watch.kinds() {
		if err := h.d.explain(ctx, h, kind, h.watch.sample(kind)); err != nil {
			h.plans = append(h.plans, fmt.Errorf("explain %s: %w", kind, err))
		}
	}
	return nil
}

// serve schedules messages that are due in two to five seconds, in transactions
// of ten. Before that it does the same without a database, to tell what is the
// outbox' part of the lateness, and what the machine's.
func (h *outlooking) serve(ctx context.Context) error {
	if err := h.measure(ctx, "in Redis", h.w.Client.ScheduleBatch); err != nil {
		return err
	}
	stop, err := h.relay(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	if err := h.loaded(ctx); err != nil {
		return err
	}
	h.watch.forget()
	return h.measure(ctx, "in the outbox", h.d.schedule(h.w.Store().Name()))
}

// measure schedules for the window and prints how late messages came.
func (h *outlooking) measure(ctx context.Context, where string, by schedule) error {
	h.w.Topic, h.w.Ledger = h.w.Topic+"-more", flow.NewLedger()
	if err := h.w.Broker.MakeTopic(ctx, h.w.Topic); err != nil {
		return err
	}
	stop := h.w.Consume(ctx)
	begin := time.Now()
	p := producing{
		by: by, ids: "s", topic: h.w.Topic, ledger: h.w.Ledger, rate: h.rate, window: h.window, lead: 2 * time.Second, spread: 3 * time.Second,
	}
	if err := p.run(ctx); err != nil {
		return errors.Join(err, stop())
	}
	took := time.Since(begin)
	if where != "in Redis" {
		h.watch.show(h.say, "loading")
	}
	h.w.Ledger.Await(time.Minute, 3*time.Second)
	if err := stop(); err != nil {
		return err
	}
	report := h.w.Ledger.Report()
	h.say("scheduled %s at %.0f a second, due in 2 to 5 s, to %s: %s", where, rate(report.Scheduled, took), h.broker, report)
	if report.Wrong() > 0 {
		return fmt.Errorf("broken promises: %d", report.Wrong())
	}
	return nil
}
