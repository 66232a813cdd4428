package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	prefix = "compare"
	queue  = "orders"
	topic  = "due"
)

// producer schedules with the SDK.
type producer struct {
	client *delay.Client
	topic  string
}

func newProducer(rdb redis.UniversalClient, queue, topic string) (producer, error) {
	client, err := delay.NewClient(rdb, queue, delay.WithPrefix(prefix))
	return producer{client: client, topic: topic}, err
}

func (p producer) schedule(ctx context.Context, l load) error {
	return l.by(ctx, func(ctx context.Context, from, n int) error {
		if n == 1 {
			_, err := p.client.Schedule(ctx, p.message(from), delay.At(l.dueAt(from)))
			return err
		}
		requests := make([]delay.Request, n)
		for i := range requests {
			requests[i] = delay.Request{Message: p.message(from + i), When: delay.At(l.dueAt(from + i))}
		}
		results, err := p.client.ScheduleBatch(ctx, requests)
		for i := range results {
			err = cmp.Or(err, results[i].Err) // The first one tells enough.
		}
		return err
	})
}

func (p producer) message(i int) delay.Message {
	return delay.Message{ID: identity(i), Topic: p.topic, Body: body}
}

// brokersTime is what the sink takes to acknowledge a batch, as a broker on the
// same machine does. The window of one that takes no time hardly opens, and claims
// stay small.
const brokersTime = time.Millisecond

// nowhere is a sink that only waits.
type nowhere struct{ *taker }

func (nowhere) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }
func (nowhere) Ping(context.Context) error           { return nil }
func (nowhere) Close(context.Context) error          { return nil }

func (n nowhere) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i := range batch {
		n.note(batch[i].ID)
	}
	_ = sleepUntil(ctx, time.Now().Add(brokersTime)) // What has come has come.
	outcomes.Rest(sinks.Acked())
}

// ours is the SDK, the store and the poller as the bridge has them, in this
// process and with a sink that does nothing.
type ours struct {
	producer

	queue  *store.Queue
	rdb    *redis.Client // of the poller
	poller *poller.Poller
	ear    sync.WaitGroup
	deafen context.CancelFunc
	taker  taker
}

func newOurs(ctx context.Context, m *memory) (*ours, error) {
	o := &ours{rdb: newClient(m.Server)}
	o.queue = store.New(o.rdb, prefix, queue).WithBatcher(conn.NewBatcher(o.rdb))
	err := makeQueue(ctx, o.queue)
	if err == nil {
		o.producer, err = newProducer(m.rdb, queue, topic)
	}
	return o, err
}

func makeQueue(ctx context.Context, q *store.Queue) error {
	_, err := q.Layouts().Ensure(ctx, store.Layout{Shards: shards, Sink: message.NATS, MaxMessage: message.DefaultMaxSize})
	return err
}

func (o *ours) deliver(ctx context.Context, to *arrivals) (err error) {
	o.taker.to.Store(to)
	if o.poller != nil {
		return nil
	}
	all := make([]int, shards)
	for i := range all {
		all[i] = i
	}
	o.poller, err = poller.New(poller.Config{
		Queue: queue, Instance: message.NewInstance("compare"), Shards: all,
		Store: func(shard int) poller.Store { return o.queue.Shard(shard) },
		Sink:  poller.Sink{Sink: nowhere{&o.taker}, Name: "nowhere"},
	})
	if err != nil {
		return err
	}
	subscriber := hints.New(o.rdb)
	subscriber.Set(o.queue.Keys(), all, hints.Listener{Wake: o.poller.Wake, Changed: func() {}})
	hearing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o.deafen = cancel
	o.ear.Go(func() { subscriber.Run(hearing) })
	return o.poller.Start(ctx)
}

// settled returns when Redis holds so many messages of a queue. It looks every five
// milliseconds.
func settled(ctx context.Context, rdb redis.UniversalClient, queue string, left int64) error {
	names := keys.Queue{Prefix: prefix, Name: queue}.Shards(shards)
	for {
		held, err := heldBy(ctx, rdb, names)
		if err != nil || held == left {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			return fmt.Errorf("%d messages are in Redis, not %d: %w", held, left, err)
		}
	}
}

func heldBy(ctx context.Context, rdb redis.UniversalClient, shards []keys.Shard) (held int64, err error) {
	pipe := rdb.Pipeline()
	for _, shard := range shards {
		pipe.HLen(ctx, shard.Msg)
	}
	answers, err := pipe.Exec(ctx)
	for _, answer := range answers {
		if count, ok := answer.(*redis.IntCmd); ok {
			held += count.Val()
		}
	}
	return held, err
}

func (o *ours) close(ctx context.Context) error {
	var err error
	if o.poller != nil {
		err = o.poller.Stop(ctx)
		o.deafen()
		o.ear.Wait()
	}
	return errors.Join(err, o.rdb.Close())
}

// quickly is how many messages a second we schedule, even on a small machine.
const quickly = 40_000

// drain measures until all of a load is settled and so many are left.
func (o *ours) drain(ctx context.Context, s sample, m *memory, l load, left int64) error {
	began := time.Now()
	if err := o.schedule(ctx, l); err != nil {
		return err
	}
	s[rateBatch] = float64(l.count) / time.Since(began).Seconds()
	if err := o.deliver(ctx, nil); err != nil {
		return err
	}
	if time.Now().After(l.due) {
		return errors.Join(errTooSlow, settled(ctx, m.rdb, queue, left))
	}
	if err := sleepUntil(ctx, l.due); err != nil {
		return err
	}
	meters := startMeters(map[metric]func() time.Duration{cpuRedis: ofServer(m.Server), cpuClient: ofSelf})
	if err := settled(ctx, m.rdb, queue, left); err != nil {
		return err
	}
	s[drainRate] = float64(l.count) / time.Since(l.due).Seconds()
	meters.read(s, l.count)
	return nil
}
