//go:build !production

package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/dev"
)

// printerQueue is how many arrivals wait to be printed; what does not fit is counted.
const printerQueue = 256

// printer prints arrivals. It never blocks who adds them. It owns one goroutine,
// which ends with close.
type printer struct {
	w    io.Writer
	done sync.WaitGroup

	mu      sync.Mutex
	waiting chan dev.Arrival // nil after close
	skipped int
}

func newPrinter(w io.Writer) *printer {
	p := &printer{w: w, waiting: make(chan dev.Arrival, printerQueue)}
	waiting := p.waiting
	p.done.Go(func() { p.run(waiting) })
	return p
}

func (p *printer) add(a dev.Arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.waiting <- a:
	default:
		p.skipped++
	}
}

func (p *printer) close() {
	p.mu.Lock()
	close(p.waiting)
	p.waiting = nil
	p.mu.Unlock()
	p.done.Wait()
}

func (p *printer) run(waiting <-chan dev.Arrival) {
	for a := range waiting {
		attempt := ""
		if a.Attempt > 1 {
			attempt = fmt.Sprintf(", attempt %d", a.Attempt)
		}
		_, _ = fmt.Fprintf(p.w, "%s  %s  %s  %s late%s\n", // A closed terminal is no reason to end.
			a.At.Format("15:04:05.000"), a.Topic, a.ID, milliseconds(a.At.Sub(a.DueAt)), attempt)
		p.mu.Lock()
		skipped := p.skipped
		p.skipped = 0
		p.mu.Unlock()
		if skipped > 0 {
			_, _ = fmt.Fprintf(p.w, "… and %d more\n", skipped)
		}
	}
}

// milliseconds writes a lateness.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}

// devHandler drops the advice on how to run Redis in production.
type devHandler struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h devHandler) Handle(ctx context.Context, record slog.Record) error {
	advice := false
	record.Attrs(func(a slog.Attr) bool {
		advice = a.Key == "event" && a.Value.String() == "redis_check"
		return !advice
	})
	if advice {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements [slog.Handler].
func (h devHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return devHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h devHandler) WithGroup(name string) slog.Handler {
	return devHandler{h.Handler.WithGroup(name)}
}
