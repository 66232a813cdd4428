package runner

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/inlet"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// Inlets are the inlets of the configuration. It owns their goroutines.
type Inlets struct {
	consumers []func(ctx context.Context)
	cancel    context.CancelFunc
	consuming sync.WaitGroup
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
	set := &Inlets{}
	for _, name := range slices.Sorted(maps.Keys(p.Config.Inlets)) {
		consume, err := newInlet(p, name)
		if err != nil {
			return nil, fmt.Errorf("inlets.%s: %w", name, err)
		}
		set.consumers = append(set.consumers, consume)
	}
	return set, nil
}

func newInlet(p InletsConfig, name string) (consume func(ctx context.Context), err error) {
	cfg := p.Config.Inlets[name]
	sink := p.Config.Sinks[cfg.Sink]
	logger := p.Logger.With("instance", p.Config.Instance, "inlet", name, "queue", cfg.Queue, "sink", cfg.Sink)
	counts := p.Metrics.AddInlet(name)
	rules := inlet.Rules{Name: name, Sink: sink.Type, Topic: cfg.Topic}
	if p.Config.Queues[cfg.Queue].Sink == cfg.Sink {
		rules.Own = cfg.From.Name()
	}
	in := inlet.New(inlet.Config{
		Rules: rules, Queue: p.Queues[cfg.Queue], Replies: cfg.Replies, Dead: cfg.Dead, Broker: p.Sinks[cfg.Sink], Remember: cfg.Remember,
		Observer: counts, Logger: logger,
	})
	from, err := sink.Settings("delaybridge-inlet-" + name).Source(source.Options{
		Topic: cfg.From.Name(), Stream: cfg.From.Stream, Group: config.InletGroup(name), Inlet: name, Batch: inlet.Batch,
		Ready: in.Ready, Waits: counts.Waits, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { from.Run(ctx, in.Handle) }, nil
}

// Start begins in the background: an unreachable broker is no reason to fail.
func (set *Inlets) Start(ctx context.Context) {
	ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, consume := range set.consumers {
		set.consuming.Go(func() { consume(ctx) })
	}
}

// Stop ends the consuming, and waits until what is done is acknowledged.
func (set *Inlets) Stop() {
	set.cancel()
	set.consuming.Wait()
}
