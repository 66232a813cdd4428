package health

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	pingEvery   = 2 * time.Second
	pingTimeout = time.Second
)

// Sinks asks each sink every two seconds whether its broker answers, so that
// /readyz can answer without waiting. It owns one goroutine per sink.
type Sinks struct {
	sinks   map[string]sinks.Sink
	metrics *telemetry.Metrics
	// isFailing reports whether publishing to a sink fails, whatever its ping says.
	isFailing func(sink string) bool

	mu     sync.Mutex
	states map[string]SinkState
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// SinkState is the state of a sink, by its pings.
type SinkState struct {
	isKnown bool
	err     error
	since   time.Time
}

// IsUp reports whether the last one succeeded.
func (s SinkState) IsUp() bool { return s.isKnown && s.err == nil }

// Since returns when a ping first had the result of the last one.
func (s SinkState) Since() time.Time { return s.since }

// Detail says why it is not up.
func (s SinkState) Detail() string {
	switch {
	case !s.isKnown:
		return "not asked yet"
	case s.err != nil:
		return s.err.Error()
	}
	return ""
}

// NewSinks returns a Sinks that has asked nothing yet.
func NewSinks(byName map[string]sinks.Sink, isFailing func(sink string) bool, metrics *telemetry.Metrics) *Sinks {
	return &Sinks{sinks: byName, metrics: metrics, isFailing: isFailing, states: map[string]SinkState{}}
}

// Start begins to ask in the background.
func (m *Sinks) Start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for name, sink := range m.sinks {
		m.done.Go(func() { m.watch(ctx, name, sink) })
	}
}

// Stop ends the asking, and waits for it.
func (m *Sinks) Stop() {
	m.cancel()
	m.done.Wait()
}

func (m *Sinks) watch(ctx context.Context, name string, sink sinks.Sink) {
	for {
		pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
		err := sink.Ping(pingCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		m.note(name, err)
		if !wait.Sleep(ctx, pingEvery) {
			return
		}
	}
}

// note records a ping's result. The first one begins the metric, which also covers
// publishing.
func (m *Sinks) note(name string, err error) {
	m.mu.Lock()
	before := m.states[name]
	now := SinkState{isKnown: true, err: err, since: before.since}
	if !before.isKnown || before.IsUp() != now.IsUp() {
		now.since = time.Now()
	}
	m.states[name] = now
	m.mu.Unlock()
	if !before.isKnown {
		m.metrics.AddSink(name, func() bool { return m.State(name).IsUp() && !m.isFailing(name) })
	}
}

// Checks are the sinks' lines of /readyz.
func (m *Sinks) Checks() []admin.Check {
	var checks []admin.Check
	for _, name := range slices.Sorted(maps.Keys(m.sinks)) {
		state := m.State(name)
		checks = append(checks, admin.Check{Name: "sink " + name, OK: state.IsUp(), Detail: state.Detail()})
	}
	return checks
}

// State returns what is known of a sink.
func (m *Sinks) State(name string) SinkState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states[name]
}
