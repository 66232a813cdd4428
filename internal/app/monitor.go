package app

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	pingEvery   = 2 * time.Second
	pingTimeout = time.Second
)

// monitor asks each sink every two seconds whether its broker answers, so that
// /readyz can tell without waiting. It owns a goroutine a sink.
type monitor struct {
	sinks   sinkSet
	metrics *telemetry.Metrics
	// isFailing reports whether what is published to a sink fails, whatever its ping says.
	isFailing func(sink string) bool

	mu     sync.Mutex
	states map[string]sinkState
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// sinkState is what the last ping said.
type sinkState struct {
	known bool
	err   error
	since time.Time // when a ping first said whether it is up
}

func (s sinkState) isUp() bool { return s.known && s.err == nil }

// detail says why it is not up.
func (s sinkState) detail() string {
	switch {
	case !s.known:
		return "not asked yet"
	case s.err != nil:
		return s.err.Error()
	}
	return ""
}

func provideMonitor(lc fx.Lifecycle, set sinkSet, queues *queueSet, metrics *telemetry.Metrics) *monitor {
	m := &monitor{sinks: set, metrics: metrics, isFailing: queues.isFailing, states: map[string]sinkState{}}
	lc.Append(fx.StartStopHook(m.start, m.stop))
	return m
}

func (m *monitor) start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for name, sink := range m.sinks {
		m.done.Go(func() { m.watch(ctx, name, sink) })
	}
}

func (m *monitor) stop() {
	m.cancel()
	m.done.Wait()
}

func (m *monitor) watch(ctx context.Context, name string, sink sinks.Sink) {
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

// note keeps what a ping said. The first one begins the metric, which is of what publishing
// does, too.
func (m *monitor) note(name string, err error) {
	m.mu.Lock()
	before := m.states[name]
	now := sinkState{known: true, err: err, since: before.since}
	if !before.known || before.isUp() != now.isUp() {
		now.since = time.Now()
	}
	m.states[name] = now
	m.mu.Unlock()
	if !before.known {
		m.metrics.AddSink(name, func() bool { return m.state(name).isUp() && !m.isFailing(name) })
	}
}

// checks are the sinks' lines of /readyz.
func (m *monitor) checks() []admin.Check {
	var checks []admin.Check
	for _, name := range slices.Sorted(maps.Keys(m.sinks)) {
		state := m.state(name)
		checks = append(checks, admin.Check{Name: "sink " + name, OK: state.isUp(), Detail: state.detail()})
	}
	return checks
}

// state is what is known of a sink.
func (m *monitor) state(name string) sinkState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states[name]
}
