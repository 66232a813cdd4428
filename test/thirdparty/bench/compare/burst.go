package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// steadyQueue is the other queue of the same bridge.
const steadyQueue = "steady"

func openBurst(ctx context.Context, b *bench) (*field, error) {
	f, err := openBroker(ctx, b, "nats", func(broker trial.Broker) []contender {
		to := target{Broker: broker, makeTopic: broker.MakeTopic, dropTopic: dropStream(broker)}
		run := func(burst int, steady bool) func(context.Context) (sample, error) {
			return func(ctx context.Context) (sample, error) { return b.burstBeside(ctx, to, burst, steady) }
		}
		return []contender{{nameSteady, run(0, true)}, {nameBurst, run(b.settings.burst, true)}, {nameDrain, run(b.count, false)}}
	})
	if err == nil {
		f.versions = append(f.versions, natsVersion(), fmt.Sprintf("%d messages in the burst", b.settings.burst))
	}
	return f, err
}

// burstBeside has so many messages due in one millisecond in one queue, and from
// then on 1,000 a second in another.
func (b *bench) burstBeside(ctx context.Context, to target, count int, steady bool) (s sample, err error) {
	m, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer m.close()
	bridge, err := b.startBridge(ctx, m.section(), to, steadyQueue)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bridge.Stop()) }()
	w := &through{bench: b, rdb: m.rdb, bridge: bridge, to: to}
	s = sample{}
	err = w.onTopic(ctx, func() error {
		l := load{count: count, size: batchSize, callers: 2, due: b.ahead(count+int(b.window/time.Millisecond), quickly)}
		if err := w.schedule(ctx, l); err != nil {
			return err
		}
		if !steady {
			return w.burst(ctx, s, l)
		}
		return w.onTopic(ctx, func() error { return w.beside(ctx, s, l, int(b.window/time.Millisecond)) })
	})
	return s, err
}

// burst waits for the end of what is due at once.
func (w *through) burst(ctx context.Context, s sample, l load) error {
	if time.Now().After(l.due) {
		return errTooSlow
	}
	if err := sleepUntil(ctx, l.due); err != nil {
		return err
	}
	if err := settled(ctx, w.rdb, queue, 0); err != nil || l.count == 0 {
		return err
	}
	s[drainRate] = float64(l.count) / time.Since(l.due).Seconds()
	return nil
}

// beside measures how late the other queue's messages are that are due before the
// burst has ended; without a burst, all.
func (w *through) beside(ctx context.Context, s sample, burst load, count int) error {
	steady, err := newProducer(w.rdb, steadyQueue, w.topic)
	if err != nil {
		return err
	}
	l := load{count: count, size: batchSize, callers: 2, due: burst.due, step: time.Millisecond}
	to := newArrivals(l)
	stop := consume(ctx, w.to, w.topic, to)
	err = steady.schedule(ctx, l)
	if err == nil {
		err = w.burst(ctx, s, burst)
	}
	took := time.Since(l.due)
	var at []time.Time
	if err == nil {
		at, err = to.wait(ctx)
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if burst.count > 0 {
		at = at[:min(len(at), int(took/time.Millisecond)+1)]
	}
	lateness(s, at, l)
	return nil
}
