package app

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// records is a handler that keeps what is logged.
type records struct {
	slog.Handler

	list *recordList
}

type recordList struct {
	mu    sync.Mutex
	lines []line
}

// line is one record, with its own fields and not those of its logger.
type line struct {
	level slog.Level
	event string
	text  string // with the fields
}

func (r *records) Handle(ctx context.Context, record slog.Record) error {
	l := line{level: record.Level, text: record.Message}
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			l.event = a.Value.String()
		}
		l.text += " " + a.String()
		return true
	})
	r.list.mu.Lock()
	r.list.lines = append(r.list.lines, l)
	r.list.mu.Unlock()
	return r.Handler.Handle(ctx, record)
}

func (r *records) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &records{Handler: r.Handler.WithAttrs(attrs), list: r.list}
}

// logger logs into the same records.
func (r *records) logger() *slog.Logger { return slog.New(r) }

// of are the lines with the text.
func (r *records) of(text string) (found []string) {
	r.list.mu.Lock()
	defer r.list.mu.Unlock()
	for _, l := range r.list.lines {
		if strings.Contains(l.text, text) {
			found = append(found, l.text)
		}
	}
	return found
}

// first is where the first line is that matches; far away where none does.
func (r *records) first(format string, args ...any) int {
	r.list.mu.Lock()
	defer r.list.mu.Unlock()
	expression := regexp.MustCompile(fmt.Sprintf(format, args...))
	at := slices.IndexFunc(r.list.lines, func(l line) bool { return expression.MatchString(l.text) })
	if at < 0 {
		return math.MaxInt
	}
	return at
}

// troubles are the warnings and errors, but those of the events, and that a route or Redis hangs: so they do where the machine is busy.
func (r *records) troubles(but ...string) (found []string) {
	r.list.mu.Lock()
	defer r.list.mu.Unlock()
	for _, l := range r.list.lines {
		hangs := l.event == "park" && strings.Contains(l.text, "reason=timeout") || strings.Contains(l.text, "i/o timeout")
		if l.level >= slog.LevelWarn && !hangs && !slices.Contains(but, l.event) {
			found = append(found, l.level.String()+" "+l.text)
		}
	}
	return found
}
