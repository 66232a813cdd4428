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

// Inlets are the inlets of the configuration. It owns their goroutines.
type Inlets struct {
	members   []inletMember
	instance  string
	began     time.Time
	cancel    context.CancelFunc
	consuming sync.WaitGroup
}

// inletMember is one inlet.
type inletMember struct {
	*inlet.Inlet

	source   source.Source
	settings operate.InletSettings
}

// InletsConfig is what inlets run with. All fields are required.
type InletsConfig struct {
	Config *config.Config
	// Queues are those of the configuration, by name.
	Queues  map[string]*operate.Queue
	Sinks   map[string]sinks.Sink
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
}

// NewInlets makes them; it does no I/O.
func NewInlets(p InletsConfig) (*Inlets, error) {
	set := &Inlets{instance: p.Config.Instance, began: time.Now()}
	for _, name := range slices.Sorted(maps.Keys(p.Config.Inlets)) {
		member, err := newInlet(p, name)
		if err != nil {
			return nil, fmt.Errorf("inlets.%s: %w", name, err)
		}
		set.members = append(set.members, member)
	}
	return set, nil
}

func newInlet(p InletsConfig, name string) (m inletMember, err error) {
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
		Rules: rules, Queue: p.Queues[cfg.Queue], Replies: cfg.Replies, Dead: cfg.Dead, Broker: p.Sinks[cfg.Sink], Remember: cfg.Remember,
		Observer: p.Metrics.AddInlet(name), Logger: logger,
	})
	m.source, err = sink.Source("delaybridge-inlet-"+name, source.Options{
		Topic: cfg.From.Name(), Stream: cfg.From.Stream, Group: config.InletGroup(name), Inlet: name, Batch: inlet.Batch,
		Ready: m.Ready, Waits: m.Waits, Session: m.Session, Logger: logger,
	})
	return m, err
}

// Views are the inlets as this instance sees them. sink tells whether a broker is known to be away, why, and since when.
func (set *Inlets) Views(sink func(name string) (isAway bool, why string, since time.Time)) operate.Inlets {
	all := operate.Inlets{Instance: set.instance, Began: operate.Stamp(set.began), Inlets: []operate.InletView{}}
	for _, m := range set.members {
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
	ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, m := range set.members {
		set.consuming.Go(func() { m.source.Run(ctx, m.Handle) })
	}
}

// Stop ends the consuming, and waits until what is done is acknowledged.
func (set *Inlets) Stop() {
	set.cancel()
	set.consuming.Wait()
}
