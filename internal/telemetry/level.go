package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// Level is the lowest level that is logged. It can be changed, also for a limited
// time. It is safe for concurrent use.
type Level struct {
	current slog.LevelVar

	mu         sync.Mutex
	configured slog.Level
	until      time.Time // zero if nothing ends the change
	back       *time.Timer
}

// NewLevel takes debug, info, warn or error; another value means info: the configuration
// has refused it before.
func NewLevel(configured string) *Level {
	l := &Level{}
	l.Configure(configured)
	return l
}

// Configure makes another level the configured one, as [NewLevel] takes it. A temporary
// change lasts until its end.
func (l *Level) Configure(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.configured.UnmarshalText([]byte(level)); err != nil {
		l.configured = slog.LevelInfo
	}
	if l.until.IsZero() {
		l.current.Set(l.configured)
	}
}

// Level implements [slog.Leveler].
func (l *Level) Level() slog.Level { return l.current.Level() }

// Set changes the level for the time last, after which the configured one applies again,
// or, if last is 0, for as long as the process lives.
func (l *Level) Set(level slog.Level, last time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back != nil {
		l.back.Stop()
	}
	l.back, l.until = nil, time.Time{}
	l.current.Set(level)
	if last > 0 {
		until := time.Now().Add(last)
		l.until = until
		l.back = time.AfterFunc(last, func() { l.end(until) })
	}
}

// end reverts a change, unless another one has followed.
func (l *Level) end(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.Equal(until) {
		l.current.Set(l.configured)
		l.back, l.until = nil, time.Time{}
	}
}

// Get returns the level in force, the configured one, and when that applies again;
// zero if it applies already, or the change does not end.
func (l *Level) Get() (current, configured slog.Level, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current.Level(), l.configured, l.until
}
