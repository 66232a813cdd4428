package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	storeconn "github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/jobs"
	"github.com/delaybridge/delaybridge/internal/membership"
	"github.com/delaybridge/delaybridge/internal/poller"
	planner "github.com/delaybridge/delaybridge/internal/recurring"
	"github.com/delaybridge/delaybridge/internal/window"
)

const (
	queueName = "q"
	prefix    = "delay"
	lease     = 5 * time.Second
)

// bridge is a running process of the bridge, with one queue: its parts put together as package
// app does it.
type bridge struct {
	w      *world
	h      *host
	rdb    *redis.Client
	queue  *store.Queue
	box    *box
	member *membership.Member
	plans  *planner.Planner
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	poller  *poller.Poller // nil until the layout is made
	shards  map[int]bool
	changed func()

	isLeaving bool
	gone      chan struct{}
}

// fleet are the bridges that run.
type fleet struct {
	all    []*bridge
	ever   []*bridge // those that have ended, too
	begun  int
	weak   time.Duration // until then, the first that takes a shard over is held up
	policy poller.Policy
}

// startBridge begins a process.
func (w *world) startBridge() *bridge {
	if len(w.plan.fleet.all) >= 3 || w.isOver || w.isNight {
		return nil
	}
	f := &w.plan.fleet
	f.begun++
	name := fmt.Sprint("bridge", f.begun)
	w.tell("start " + name)
	b := &bridge{w: w, h: w.newHost(name), gone: make(chan struct{}), shards: map[int]bool{}}
	b.rdb = b.h.client()
	identity := message.NewInstance(name)
	b.queue = store.New(b.rdb, prefix, queueName).WithBatcher(storeconn.NewBatcher(b.rdb))
	if w.plan.durable {
		b.queue.WithDurability(store.ByReplicas(1))
	}
	logger := w.logger(name)
	var err error
	if b.box, err = b.openBox(logger); err != nil {
		w.t.Fatal(err)
	}
	b.plans = b.newPlanner(logger)
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	b.member = membership.New(membership.Config{
		Queue: queueName, Instance: identity, Lease: lease, Want: w.plan.layout(),
		Store: b.queue.Members(), Registry: b.queue.Layouts(), Keeper: b.queue.NewKeeper(), Observer: noObserver{}, Logger: logger,
		Heard: func(error) {}, Hear: b.hear, Reborn: b.box.reborn,
	})
	config := poller.Config{
		Queue: queueName, Instance: identity, Store: func(shard int) poller.Store { return b.queue.Shard(shard) },
		Sink:   poller.Sink{Sink: &sink{h: b.h}, Name: "s", Window: window.New()},
		Claims: poller.Claims{Batch: w.plan.batch, InFlight: w.plan.inFlight, Lease: lease, Timeout: 20 * time.Second, Durable: w.plan.durable},
		Policy: f.policy, Topics: b.queue.Topics(), Bucket: b.queue.Members(), Logger: logger,
		Hooks: poller.Hooks{
			OnNoLayout: func(ctx context.Context, _ int) { b.member.NoMeta(ctx) },
			OnEpoch:    b.member.SawEpoch, OnLateAcks: b.box.lateAcks,
		},
	}
	if len(f.all) == 0 {
		w.model.happened("no bridge")
	}
	f.all, f.ever = append(f.all, b), append(f.ever, b)
	b.done.Go(func() { b.run(ctx, config, identity, logger) })
	b.box.start()
	return b
}

func (b *bridge) run(ctx context.Context, config poller.Config, identity string, logger *slog.Logger) {
	if _, err := b.member.Prepare(ctx); err != nil {
		return
	}
	b.box.prepared()
	b.done.Go(func() { jobs.New(job.New(b.queue), identity, logger).Run(ctx) })
	b.done.Go(func() { b.plans.Run(ctx) })
	p, err := poller.New(config)
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		b.w.fail("no poller: %s", err)
		return
	}
	b.mu.Lock()
	b.poller = p
	b.mu.Unlock()
	p.Change(b.w.plan.fleet.policy) // It may have changed since the start.
	if err := b.member.Run(ctx, assigned{p}); err != nil {
		b.w.fail("%s: %s", b.h.name, err)
	}
}

// assigned is the poller as the member knows it.
type assigned struct{ *poller.Poller }

// Gains implements [membership.Poller].
func (a assigned) Gains() membership.Gains { return membership.Gains(a.Poller.Gains()) }

// hear takes which shards' hints the bridge wants.
func (b *bridge) hear(shards []int, changed func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.shards)
	for _, shard := range shards {
		b.shards[shard] = true
	}
	b.changed = changed
}

// hinted passes on what Redis has published, if it does not get lost.
func (w *world) hinted(channel string) {
	for _, b := range w.plan.fleet.all {
		b.mu.Lock()
		p, changed := b.poller, b.changed
		b.mu.Unlock()
		if p == nil || changed == nil || w.chance(5) {
			continue
		}
		late := w.between(100*time.Microsecond, 10*time.Millisecond)
		if !strings.HasSuffix(channel, ":wake") {
			w.after(late, "", func() { changed(); b.plans.Wake() })
			continue
		}
		shard := -1
		_, _ = fmt.Sscanf(tagOf(channel), "{"+queueName+":%d}", &shard)
		if b.shards[shard] {
			w.after(late, "", func() { p.Wake(shard) })
		}
	}
}

// leave takes the bridge out of those that run.
func (b *bridge) leave() bool {
	if b.isLeaving {
		return false
	}
	b.isLeaving = true
	f := &b.w.plan.fleet
	for i, other := range f.all {
		if other == b {
			f.all = append(f.all[:i:i], f.all[i+1:]...)
			break
		}
	}
	if len(f.all) == 0 {
		b.w.model.happened("no bridge")
	}
	return true
}

// crash ends the process as kill -9 does.
func (b *bridge) crash() {
	if !b.leave() {
		return
	}
	b.w.tell("crash " + b.h.name)
	b.h.die()
	b.end(0, func(error) {})
}

// drain ends the process as SIGTERM does.
func (b *bridge) drain(budget time.Duration, ended func(error)) {
	if !b.leave() {
		return
	}
	b.w.tell("drain " + b.h.name)
	b.end(budget, ended)
}

func (b *bridge) end(budget time.Duration, ended func(error)) {
	go func() {
		defer close(b.gone)
		ctx, cancel := context.WithTimeout(context.Background(), budget)
		defer cancel()
		b.box.halt()
		b.cancel()
		b.done.Wait()
		var err error
		if b.poller != nil {
			b.member.Leave(ctx)
			err = b.poller.Stop(ctx)
		}
		b.box.finish(ctx)
		_ = b.rdb.Close()
		b.w.ask(b.h.name+" ended", func() {
			b.w.tell(b.h.name + " has ended")
			ended(err)
		})
	}()
}

// follow gives all bridges the policy.
func (w *world) follow(policy poller.Policy) {
	w.plan.fleet.policy = policy
	for _, b := range w.plan.fleet.all {
		b.mu.Lock()
		p := b.poller
		b.mu.Unlock()
		if p != nil {
			p.Change(policy)
		}
	}
}

// logger makes log lines a part of the story, but not of its hash.
func (w *world) logger(host string) *slog.Logger {
	return slog.New(slog.NewTextHandler(storyWriter{w, host}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "instance" || a.Key == "queue" || a.Key == "sink" {
			return slog.Attr{}
		}
		return a
	}}))
}

type storyWriter struct {
	w    *world
	host string
}

func (s storyWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "msg=panic") || strings.Contains(text, "panicked") {
		s.w.fail("%s: %s", s.host, text)
	}
	if s.w.log != nil {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		s.w.log("%14s   %s: %s", s.w.now(), s.host, text)
	}
	return len(line), nil
}

type noObserver struct{}

func (noObserver) Layout(string, string, int)          {}
func (noObserver) ShardsLost(string, int)              {}
func (noObserver) Instances(string, int)               {}
func (noObserver) Paused(string, map[string]time.Time) {}
