package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/test/trial"
)

// startBridge runs a bridge, and waits until it is ready. redis is its section of
// a configuration; more are further queues.
func (b *bench) startBridge(ctx context.Context, redis string, to target, more ...string) (*trial.Bridge, error) {
	dir, err := os.MkdirTemp(b.dir, "bridge-")
	if err != nil {
		return nil, err
	}
	bridge, err := trial.NewBridge(ctx, b.binary, dir, trial.Setup{
		Redis: redis, Prefix: prefix, Queue: queue, Shards: shards, Sink: to.SinkConfig(), Queues: more, QueueKeys: to.queueKeys,
	})
	if err != nil {
		return nil, err
	}
	return bridge, bridge.Start(ctx)
}

func (m *memory) section() string { return fmt.Sprintf("{url: %q}", m.URL()) }

// through is a bridge with its Redis and a topic at a broker.
type through struct {
	producer

	bench  *bench
	rdb    redis.UniversalClient
	bridge *trial.Bridge
	to     target
	cpu    map[metric]func() time.Duration
	next   int // the first number that is free
	// filled is what is done once messages are scheduled, before the first one is due.
	filled func(context.Context) error
}

// topicSeries numbers the topics, so that no two have one name.
var topicSeries int

func (t target) newTopic(ctx context.Context) (string, error) {
	topicSeries++
	topic := fmt.Sprintf("%s-%d", topic, topicSeries)
	return topic, t.makeTopic(ctx, topic)
}

// bridged measures the whole path: the drain to the broker's acknowledgement and
// the end of all claims, and how late the broker has messages.
func (b *bench) bridged(to target) func(context.Context) (sample, error) {
	return func(ctx context.Context) (s sample, err error) {
		m, err := startRedis(ctx)
		if err != nil {
			return nil, err
		}
		defer m.close()
		bridge, err := b.startBridge(ctx, m.section(), to)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, bridge.Stop()) }()
		w := &through{bench: b, rdb: m.rdb, bridge: bridge, to: to, cpu: map[metric]func() time.Duration{
			cpuRedis: ofServer(m.Server), cpuClient: bridge.CPU, cpuBroker: ofServer(to.Server()),
		}}
		s = sample{}
		if err := w.onTopic(ctx, func() error { return w.drain(ctx, s, b.count) }); err != nil {
			return s, fmt.Errorf("drain: %w", err)
		}
		return s, b.punctuality(s, func(s sample, count int, step time.Duration) error {
			return w.onTopic(ctx, func() error { return w.paced(ctx, s, count, step) })
		})
	}
}

// punctuality measures how late messages are at 1,000 and at 10,000 a second.
func (b *bench) punctuality(s sample, paced func(s sample, count int, step time.Duration) error) error {
	const slowly, fast = time.Second / 1000, time.Second / 10_000
	if err := paced(s, int(b.window/slowly), slowly); err != nil {
		return fmt.Errorf("1,000 a second: %w", err)
	}
	more := sample{}
	if err := paced(more, int(b.window/2/fast), fast); err != nil {
		return fmt.Errorf("10,000 a second: %w", err)
	}
	s[fast99], s[earliest], s[twice] = more[late99], max(s[earliest], more[earliest]), s[twice]+more[twice]
	return nil
}

// onTopic does something on a topic of its own.
func (t target) onTopic(ctx context.Context, do func(topic string) error) error {
	topic, err := t.newTopic(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(topic), t.dropTopic(context.WithoutCancel(ctx), topic))
}

// onTopic schedules to a topic of its own.
func (w *through) onTopic(ctx context.Context, do func() error) error {
	return w.to.onTopic(ctx, func(topic string) (err error) {
		if w.producer, err = newProducer(w.rdb, queue, topic); err != nil {
			return err
		}
		return do()
	})
}

// fill schedules messages in batches, and returns when the first one is due.
func (w *through) fill(ctx context.Context, count int, step time.Duration) (load, error) {
	l := load{first: w.next, count: count, size: batchSize, callers: 2, step: step, due: w.bench.ahead(count, quickly)}
	w.next += count
	err := w.schedule(ctx, l)
	if err == nil && w.filled != nil {
		err = w.filled(ctx)
	}
	if err == nil && time.Now().After(l.due) {
		err = errTooSlow
	}
	return l, errors.Join(err, sleepUntil(ctx, l.due))
}

func (w *through) drain(ctx context.Context, s sample, count int) error {
	l, err := w.fill(ctx, count, 0)
	if err != nil {
		return err
	}
	meters := startMeters(w.cpu)
	if err := settled(ctx, w.rdb, queue, 0); err != nil {
		return err
	}
	s[drainRate] = float64(count) / time.Since(l.due).Seconds()
	meters.read(s, count)
	return w.to.holds(ctx, w.topic, count)
}

// drained starts a bridge of its own, with that section of Redis, and measures only the drain.
func (w *through) drained(ctx context.Context, section string, ofRedis func() time.Duration) (s sample, err error) {
	if w.bridge, err = w.bench.startBridge(ctx, section, w.to); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.bridge.Stop()) }()
	w.cpu = map[metric]func() time.Duration{cpuRedis: ofRedis, cpuClient: w.bridge.CPU, cpuBroker: ofServer(w.to.Server())}
	s = sample{}
	return s, w.onTopic(ctx, func() error { return w.drain(ctx, s, w.bench.count) })
}

// drainedMinimally measures the drain of a queue with few headers. How late its messages are it cannot tell: they have no
// ids.
func (b *bench) drainedMinimally(to target) func(context.Context) (sample, error) {
	to.queueKeys = "headers: minimal"
	return func(ctx context.Context) (sample, error) {
		m, err := startRedis(ctx)
		if err != nil {
			return nil, err
		}
		defer m.close()
		w := &through{bench: b, rdb: m.rdb, to: to}
		return w.drained(ctx, m.section(), ofServer(m.Server))
	}
}

// paced measures messages that are due one a step.
func (w *through) paced(ctx context.Context, s sample, count int, step time.Duration) error {
	l := load{first: w.next, count: count, step: step}
	return w.to.arrive(ctx, w.topic, s, l, func() (load, error) { return w.fill(ctx, count, step) })
}

// arrive measures how late the broker has messages that do sends; it returns when
// they were due.
func (t target) arrive(ctx context.Context, topic string, s sample, l load, do func() (load, error)) error {
	to := newArrivals(l)
	stop := consume(ctx, t, topic, to)
	l, err := do()
	if err != nil {
		return errors.Join(err, stop())
	}
	at, err := to.wait(ctx)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	lateness(s, at, l)
	s[twice] = float64(to.twice.Load())
	return nil
}

// consume notes when the broker has stored the messages of a topic, until it is
// stopped; where the broker does not tell, when a consumer gets them.
func consume(ctx context.Context, from trial.Broker, topic string, to *arrivals) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- from.Consume(ctx, topic, func(r trial.Record) { to.noteAt(r.ID, r.At) }) }()
	return func() error {
		cancel()
		return <-done
	}
}

// limit measures the client library alone, which publishes the same messages.
func (b *bench) limit(to target, headers headersOf) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		s := sample{}
		return s, to.onTopic(ctx, func(topic string) error {
			meters := startMeters(map[metric]func() time.Duration{cpuClient: ofSelf, cpuBroker: ofServer(to.Server())})
			began := time.Now()
			if err := to.publish(ctx, to, topic, series{load{count: b.count}, headers}); err != nil {
				return err
			}
			s[drainRate] = float64(b.count) / time.Since(began).Seconds()
			meters.read(s, b.count)
			return to.holds(ctx, topic, b.count)
		})
	}
}

// limitAsBridged measures it with the bridge's headers, and how late the broker
// has messages that are published at their time.
func (b *bench) limitAsBridged(to target) func(context.Context) (sample, error) {
	drain := b.limit(to, asBridged)
	return func(ctx context.Context) (sample, error) {
		s, err := drain(ctx)
		if err != nil {
			return s, err
		}
		return s, b.punctuality(s, func(s sample, count int, step time.Duration) error {
			return to.onTopic(ctx, func(topic string) error {
				l := load{count: count, step: step}
				return to.arrive(ctx, topic, s, l, func() (load, error) {
					l.due = time.Now().Truncate(time.Second).Add(2 * time.Second)
					return l, to.publish(ctx, to, topic, series{l, asBridged})
				})
			})
		})
	}
}
