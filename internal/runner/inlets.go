package runner

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/inlet"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// Inlets are the inlets of the configuration. It owns their goroutines. An inlet starts again with its queue.
type Inlets struct {
	config    InletsConfig
	instance  string
	began     time.Time
	cancel    context.CancelFunc
	consuming sync.WaitGroup

	mu      sync.Mutex
	members []*inletMember
	ctx     context.Context //nolint:containedctx // Inlets that come later run in it. It is nil until Start.
}

// inletMember is one inlet.
type inletMember struct {
	*inlet.Inlet

	source   source.Source
	settings operate.InletSettings
	// Of one that runs.
	stop  context.CancelFunc
	ended chan struct{}
}

// InletsConfig is what inlets run with. All fields are required.
type InletsConfig struct {
	Config  *config.Config
	Queues  *Queues
	Sinks   map[string]sinks.Sink
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
}

// NewInlets makes them, and has them follow the queues; it does no I/O.
func NewInlets(p InletsConfig) (*Inlets, error) {
	set := &Inlets{config: p, instance: p.Config.Instance, began: time.Now()}
	for _, name := range slices.Sorted(maps.Keys(p.Config.Inlets)) {
		member, err := newInlet(p, name, p.Queues.Used()[p.Config.Inlets[name].Queue])
		if err != nil {
			return nil, err
		}
		set.members = append(set.members, member)
	}
	p.Queues.addInlets(set)
	return set, nil
}

// prepare makes the inlets of queues that start again. commit has them follow those that run, and does not block.
func (set *Inlets) prepare(next *config.Config, come map[string]*queue) (commit func(), err error) {
	p := set.config
	p.Config = next
	made := map[string]*inletMember{}
	for _, name := range slices.Sorted(maps.Keys(next.Inlets)) { // Inlets do not change.
		q := come[next.Inlets[name].Queue]
		if q == nil {
			continue
		}
		if made[name], err = newInlet(p, name, q.used); err != nil {
			return nil, err
		}
	}
	return func() { set.follow(made) }, nil
}

// follow has inlets follow those of their names, each as soon as that has ended.
func (set *Inlets) follow(made map[string]*inletMember) {
	set.mu.Lock()
	defer set.mu.Unlock()
	members := slices.Clone(set.members) // Somebody may be looking at them.
	for i, before := range members {
		m := made[before.settings.Name]
		if m == nil {
			continue
		}
		if members[i] = m; set.ctx != nil {
			before.stop()
			set.run(m, before.ended)
		}
	}
	set.members = members
}

// run runs an inlet after another one has ended.
func (set *Inlets) run(m *inletMember, before <-chan struct{}) {
	var ctx context.Context
	ctx, m.stop = context.WithCancel(set.ctx)
	m.ended = make(chan struct{})
	set.consuming.Go(func() {
		defer close(m.ended)
		defer m.stop()
		<-before
		m.source.Run(ctx, m.Handle)
	})
}

func newInlet(p InletsConfig, name string, queue *operate.Queue) (m *inletMember, err error) {
	m = &inletMember{}
	cfg := p.Config.Inlets[name]
	sink := p.Config.Sinks[cfg.Sink]
	logger := p.Logger.With("instance", p.Config.Instance, "inlet", name, "queue", cfg.Queue, "sink", cfg.Sink)
	rules := inlet.Rules{Name: name, Sink: sink.Type, Topic: cfg.Topic}
	if p.Config.Queues[cfg.Queue].Sink == cfg.Sink {
		rules.Own = cfg.From.Name()
	}
	m.settings = operate.InletSettings{
		Name: name, Queue: cfg.Queue, Sink: cfg.Sink, Type: string(sink.Type), From: cfg.From.Name(), Stream: cfg.From.Stream,
		Group: config.InletGroup(name), Topic: cfg.Topic, Replies: cfg.Replies, Dead: cfg.Dead,
	}
	m.Inlet = inlet.New(inlet.Config{
		Rules: rules, Queue: queue, Replies: cfg.Replies, Dead: cfg.Dead, Broker: p.Sinks[cfg.Sink], Remember: cfg.Remember,
		Observer: p.Metrics.AddInlet(name), Logger: logger,
	})
	m.source, err = sink.Source("delaybridge-inlet-"+name, source.Options{
		Topic: cfg.From.Name(), Stream: cfg.From.Stream, Group: config.InletGroup(name), Inlet: name, Batch: inlet.Batch,
		Ready: m.Ready, Waits: m.Waits, Session: m.Session, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("inlets.%s: %w", name, err)
	}
	return m, nil
}

// Views are the inlets as this instance sees them. sink tells whether a broker is known to be away, why, and since when.
func (set *Inlets) Views(sink func(name string) (isAway bool, why string, since time.Time)) operate.Inlets {
	all := operate.Inlets{Instance: set.instance, Began: operate.Stamp(set.began), Inlets: []operate.InletView{}}
	set.mu.Lock()
	members := set.members
	set.mu.Unlock()
	for _, m := range members {
		v := operate.InletView{InletSettings: m.settings, InletState: m.State()}
		if isAway, why, since := sink(v.Sink); isAway {
			v.WithoutBroker(why, since)
		}
		all.Inlets = append(all.Inlets, v)
	}
	return all
}

// Start begins in the background: an unreachable broker is no reason to fail.
func (set *Inlets) Start(ctx context.Context) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	now := make(chan struct{})
	close(now)
	for _, m := range set.members {
		set.run(m, now) //nolint:contextcheck // It runs until Stop.
	}
}

// Stop ends the consuming, and waits until what is done is acknowledged.
func (set *Inlets) Stop() {
	set.cancel()
	set.consuming.Wait()
}
