package main

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// watch notes the statements of a relay, and what an auditor puts back. It is safe for
// concurrent use.
type watch struct {
	putBack atomic.Int64 // messages, since the beginning

	mu      sync.Mutex
	took    map[string][]time.Duration
	samples map[string]table.Statement
	since   time.Time
}

func newWatch() *watch {
	return &watch{took: map[string][]time.Duration{}, samples: map[string]table.Statement{}, since: time.Now()}
}

// note is what a relay calls.
func (w *watch) note(s table.Statement) {
	kind := statementKind(s.Query)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took[kind] = append(w.took[kind], s.Took)
	if _, found := w.samples[kind]; !found || len(s.Args) > len(w.samples[kind].Args) {
		w.samples[kind] = s
	}
}

// audited is what an auditor calls.
func (w *watch) audited(c auditor.Counts) { w.putBack.Add(c.PutBack) }

// statementKind tells what a relay asks for. What is unknown goes by its beginning.
func statementKind(query string) string {
	for _, known := range []struct{ text, kind string }{
		{"finished_ms <", "look for purge"},
		{"max(id), ''", "look for new"},
		{"MAX(id)", "look for the last"},
		{"queue, topic, op = 0", "look for topics"},
		{"(SELECT load_ms", "look"},
		{"status + 0 = 0 AND op + 0 = 0", "lock new messages"},
		{"op + 0 = 0", "lock messages"},
		{"SELECT message_key, message_id FROM", "list operations"},
		{"op + 0 > 0 ORDER BY", "lock operations"},
		{"since_ms", "count backlog"},
		{"queue > ", "look for queues"},
		{"load_ms <=", "count unknown"},
		{"status = 1 AND op = 0", "audit"},
		{"FOR UPDATE SKIP LOCKED", "lock settled"},
		{"op > 0 AND status + 0 = 0", "look up operations"},
		{"status IN (0, 1)", "look up messages"},
		{"SELECT id, queue, message_key", "read again"},
		{"UPDATE", "write"},
		{"DELETE", "delete"},
		{"UTC_TIMESTAMP", "clock"},
		{"clock_timestamp", "clock"},
	} {
		if strings.Contains(query, known.text) {
			return known.kind
		}
	}
	return query[:min(len(query), 30)]
}

// forget begins anew, but for the samples.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took, w.since = map[string][]time.Duration{}, time.Now()
}

// kinds are those seen that look for rows or change them.
func (w *watch) kinds() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.samples)), func(kind string) bool {
		query := w.samples[kind].Query
		return !strings.Contains(query, "status = 0") && !strings.Contains(query, "WHERE id")
	})
}

func (w *watch) sample(kind string) table.Statement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.samples[kind]
}

// show says how long the statements took since the last forget.
func (w *watch) show(say func(format string, args ...any), when string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seconds := time.Since(w.since).Seconds()
	say("%-12s %-32s %8s %10s %10s %10s", when, "statement", "a second", "p50", "p99", "max")
	for _, kind := range slices.Sorted(maps.Keys(w.took)) {
		took := w.took[kind]
		slices.Sort(took)
		n := len(took)
		say("%-12s %-32s %8.1f %10s %10s %10s", when, kind, float64(n)/seconds,
			took[n/2].Round(time.Microsecond), took[n*99/100].Round(time.Microsecond), took[n-1].Round(time.Microsecond))
	}
}
