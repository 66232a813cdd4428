package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	// waveLasts is how long messages of the wave fall due.
	waveLasts = time.Minute
	// waveWithin is how far the scaler looks ahead.
	waveWithin = 2 * time.Minute
	// wavePatience is how long after its begin all of it is done, or something is lost.
	wavePatience = 10 * time.Minute
	// waveQueue is the queue whose consumers are scaled by its demand, too.
	waveQueue = "ahead"
	// A replica takes waveWork for a message, and there are at most waveReplicas.
	waveWork     = 5 * time.Millisecond
	waveReplicas = 20
	// waveTarget is how many messages there may be for a replica: what it does in 15 s.
	waveTarget = 3000
	// waveFetch is how many messages a replica fetches at once.
	waveFetch = 20
)

// waveFigure plays a wave of 100,000 messages to two pools of consumers: one is scaled by
// what its consumer group has not done yet, the other also by what is to come. Both at the same
// time, each with a queue of its own, so that what else the machine does counts for both. The bridge,
// Redis and NATS are real; KEDA, the autoscaler and the start of a replica are played.
func waveFigure(ctx context.Context, r run) error {
	if r.broker != "nats" {
		return errors.New("it is measured with nats only")
	}
	for range r.repeat {
		if err := r.wave(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r run) wave(ctx context.Context) error {
	w, err := r.world(ctx, trial.Options{Queues: []string{waveQueue}})
	if err != nil {
		return err
	}
	defer w.Close()
	nc, err := nats.Connect(w.Broker.Server().URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	count := cmp.Or(r.count, 100_000)
	pools := []*pool{
		{name: "backlog", queue: w.Queue(), topic: w.Topic, count: count},
		{name: "and demand", queue: waveQueue, topic: w.Topic + "-ahead", count: count, asks: "http://" + w.Bridge.Admin()},
	}
	if err := w.Broker.MakeTopic(ctx, pools[1].topic); err != nil {
		return err
	}
	begin := time.Now().Add(time.Duration(count/2000)*time.Second + waveWithin + 3*pollEvery)
	for _, p := range pools {
		if err := p.prepare(ctx, w, js, begin); err != nil {
			return err
		}
	}
	if time.Until(begin) < waveWithin+pollEvery {
		return errors.New("the wave is too near by the time that it is scheduled")
	}
	ctx, cancel := context.WithDeadline(ctx, begin.Add(wavePatience))
	defer cancel()
	group, playing := errgroup.WithContext(ctx)
	for _, p := range pools {
		group.Go(func() error { return p.play(playing, begin, r.start) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("wave     %-8s %d messages due within %s; a replica does %d a second and starts in %s\n", r.broker, count, waveLasts, time.Second/waveWork, r.start)
	fmt.Printf("wave     %-8s %-15s %9s %9s %9s %9s %15s %15s\n", r.broker, "scaled by", "p50", "p99", "longest", "all after", "ready at begin", "replica-seconds")
	for _, p := range pools {
		p.print(r.broker)
	}
	return nil
}

// pool are the consumers of one queue.
type pool struct {
	name, queue, topic string
	count              int
	// asks is the address of the bridge that is asked for the demand; empty: nobody is asked.
	asks string

	client   *delay.Client
	consumer jetstream.Consumer
	scaler   scaler
	begin    time.Time

	mu sync.Mutex
	// took has the time from the due time to the end of the work, by message.
	took map[string]time.Duration
	// ready are the replicas that were there when the first message was due.
	ready int
	asked time.Duration // for replicas, each counted from when it was asked for
	ended time.Time
	done  chan struct{} // is closed once all messages are done
}

// prepare schedules the wave.
func (p *pool) prepare(ctx context.Context, w *trial.World, js jetstream.JetStream, begin time.Time) (err error) {
	p.begin, p.took, p.done = begin, map[string]time.Duration{}, make(chan struct{})
	p.scaler = scaler{target: waveTarget, most: waveReplicas}
	if p.client, err = delay.NewClient(w.RDB, p.queue, delay.WithPrefix(w.Prefix())); err != nil {
		return err
	}
	p.consumer, err = js.CreateConsumer(ctx, p.topic, jetstream.ConsumerConfig{Durable: "pool", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1})
	if err != nil {
		return err
	}
	return fill(ctx, w, filling{client: p.client, topic: p.topic, count: p.count, due: begin, step: waveLasts / time.Duration(p.count)})
}

// play scales until all messages are done.
func (p *pool) play(ctx context.Context, begin time.Time, start time.Duration) error {
	first := begin.Add(-waveWithin - pollEvery)
	if err := trial.Sleep(ctx, time.Until(first)); err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(working)
	defer stop()
	for turn := 0; ; turn++ {
		if err := p.turn(working, turn, group, start); err != nil {
			stop()
			return errors.Join(err, group.Wait())
		}
		select {
		case <-p.done:
			stop()
			return group.Wait()
		case <-ctx.Done():
			return errors.Join(ctx.Err(), group.Wait())
		case <-time.After(time.Until(first.Add(time.Duration(turn+1) * pollEvery))):
		}
	}
}

// turn has KEDA look, and at every third turn the autoscaler, and starts the replicas that they want.
func (p *pool) turn(ctx context.Context, turn int, group *errgroup.Group, start time.Duration) error {
	metrics, err := p.metrics(ctx)
	if err != nil {
		return err
	}
	before := p.scaler.replicas
	p.scaler.poll(metrics)
	if turn%int(syncEvery/pollEvery) == 0 {
		p.scaler.sync(time.Now(), metrics)
	}
	for range p.scaler.replicas - before {
		group.Go(func() error { return p.replica(ctx, start) })
	}
	return nil
}

// metrics are what the pool is scaled by.
func (p *pool) metrics(ctx context.Context) ([]int64, error) {
	info, err := p.consumer.Info(ctx)
	if err != nil {
		return nil, err
	}
	metrics := []int64{int64(info.NumPending) + int64(info.NumAckPending)} //nolint:gosec // small
	if p.asks == "" {
		return metrics, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/queues/%s/demand?within=%s", p.asks, p.queue, waveWithin), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var demand struct{ Messages *int64 }
	if err := json.NewDecoder(response.Body).Decode(&demand); err != nil || demand.Messages == nil {
		return nil, errors.Join(err, fmt.Errorf("demand: %s", response.Status))
	}
	return append(metrics, *demand.Messages), nil
}

// replica starts, and then does one message after the other until ctx ends.
func (p *pool) replica(ctx context.Context, start time.Duration) error {
	asked := time.Now()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked += p.ended.Sub(asked)
	}()
	if trial.Sleep(ctx, start) != nil {
		return nil
	}
	free := time.Now()
	if free.Before(p.begin) {
		p.mu.Lock()
		p.ready++
		p.mu.Unlock()
	}
	for ctx.Err() == nil {
		messages, err := p.consumer.Fetch(waveFetch, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for m := range messages.Messages() {
			free = free.Add(max(0, time.Since(free))).Add(waveWork)
			if trial.Sleep(ctx, time.Until(free)) != nil {
				return nil
			}
			if err := p.finish(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish notes how long after its due time a message is done.
func (p *pool) finish(m jetstream.Msg) error {
	due, err := time.Parse(message.TimeFormat, m.Headers().Get(message.HeaderDueAt))
	if err != nil {
		return err
	}
	now, id := time.Now(), m.Headers().Get(message.HeaderID)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isCopy := p.took[id]; isCopy {
		return fmt.Errorf("%s arrived twice", id)
	}
	if p.took[id] = now.Sub(due); len(p.took) == p.count {
		p.ended = now
		close(p.done)
	}
	return m.Ack()
}

func (p *pool) print(broker string) {
	took := make([]time.Duration, 0, len(p.took))
	for _, d := range p.took {
		took = append(took, d)
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return ms(took[(len(took)-1)*percent/100]) }
	fmt.Printf("wave     %-8s %-15s %9s %9s %9s %9s %15d %15.0f\n",
		broker, p.name, at(50), at(99), at(100), ms(p.ended.Sub(p.begin)), p.ready, p.asked.Seconds()) //nolint:mnd // percent
}
