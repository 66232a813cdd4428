package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// priced is a way of using the queue that costs more than the plain one.
type priced struct {
	name      string
	queueKeys string
	tags      []string
}

// prices are what a message has cost: processor time of Redis in µs, and bytes in Redis.
type prices struct{ schedule, publish, waiting, ended float64 }

// priceFigure measures what tags and a history cost, by turns with neither.
func priceFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 100_000)
	cases := []priced{
		{name: "plain"},
		{name: "one tag", tags: []string{"customer-7"}},
		{name: "history", queueKeys: "history: {count: 10000000, age: 24h}"},
		{name: "budget", queueKeys: "budget: {bytes: 8GiB}"},
	}
	all := map[string][]prices{}
	for range r.repeat {
		for _, c := range cases {
			p, err := r.price(ctx, c, count)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			all[c.name] = append(all[c.name], p)
		}
	}
	for _, c := range cases {
		of := func(field func(prices) float64) float64 {
			values := make([]float64, 0, r.repeat)
			for _, p := range all[c.name] {
				values = append(values, field(p))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		fmt.Printf("price    %-8s Redis a message: schedule %5.1f µs, claim and settle %5.1f µs; %4.0f bytes while it waits, %4.0f after (medians of %d, %d messages)\n",
			c.name, of(func(p prices) float64 { return p.schedule }), of(func(p prices) float64 { return p.publish }),
			of(func(p prices) float64 { return p.waiting }), of(func(p prices) float64 { return p.ended }), r.repeat, count)
	}
	return nil
}

func (r run) price(ctx context.Context, c priced, count int) (p prices, err error) {
	w, err := r.world(ctx, trial.Options{QueueKeys: c.queueKeys})
	if err != nil {
		return p, err
	}
	defer w.Close()
	var marks [3]spent
	var bytes [3]int64
	mark := func(i int) (err error) {
		var errLook error
		bytes[i], err = usedMemory(ctx, w)
		marks[i], errLook = look(ctx, w)
		return errors.Join(err, errLook)
	}
	if err := mark(0); err != nil {
		return p, err
	}
	due, err := fillAhead(ctx, w, filling{count: count, ids: "price", tags: c.tags}, 10_000)
	if err != nil {
		return p, err
	}
	if err := mark(1); err != nil {
		return p, err
	}
	if err := trial.Sleep(ctx, time.Until(due)); err != nil {
		return p, err
	}
	if _, err := w.Drained(ctx); err != nil {
		return p, err
	}
	if err := mark(2); err != nil { //nolint:mnd // the last
		return p, err
	}
	return prices{
		schedule: each(marks[1].redis-marks[0].redis, count), publish: each(marks[2].redis-marks[1].redis, count),
		waiting: float64(bytes[1]-bytes[0]) / float64(count), ended: float64(bytes[2]-bytes[0]) / float64(count),
	}, nil
}

// each is the part of one message, in microseconds.
func each(all time.Duration, count int) float64 { return float64(all.Microseconds()) / float64(count) }
