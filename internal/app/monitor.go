package app

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/wait"
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

	mu     sync.Mutex
	states map[string]sinkState
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// sinkState is what the last ping said.
type sinkState struct {
	known bool
	err   error
}

func provideMonitor(lc fx.Lifecycle, set sinkSet, metrics *telemetry.Metrics) *monitor {
	m := &monitor{sinks: set, metrics: metrics, states: map[string]sinkState{}}
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

// note keeps what a ping said. The metric follows changes only: between them the
// poller, which sees what publishing does, knows better.
func (m *monitor) note(name string, err error) {
	m.mu.Lock()
	before := m.states[name]
	m.states[name] = sinkState{known: true, err: err}
	m.mu.Unlock()
	if !before.known || (before.err == nil) != (err == nil) {
		m.metrics.SinkUp(name, err == nil)
	}
}

// checks are the sinks' lines of /readyz.
func (m *monitor) checks() []admin.Check {
	var checks []admin.Check
	for _, name := range slices.Sorted(maps.Keys(m.sinks)) {
		isUp, detail := m.state(name)
		checks = append(checks, admin.Check{Name: "sink " + name, OK: isUp, Detail: detail})
	}
	return checks
}

// state is whether a sink is up, and else why not.
func (m *monitor) state(name string) (isUp bool, detail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch state := m.states[name]; {
	case !state.known:
		return false, "not asked yet"
	case state.err != nil:
		return false, state.err.Error()
	}
	return true, ""
}
