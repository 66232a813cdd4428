package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
)

const (
	// barEvery and linesEvery are how often progress is shown.
	barEvery   = 200 * time.Millisecond
	linesEvery = 5 * time.Second
	barWidth   = 30
)

// progressBar shows how far it is: as a bar on a terminal, else as lines.
type progressBar struct {
	w        io.Writer
	queue    string
	total    int64
	terminal bool

	mu    sync.Mutex
	shown time.Time
	drawn bool
}

func newProgressBar(w io.Writer, queue string, total int64) *progressBar {
	file, ok := w.(interface{ Fd() uintptr })
	return &progressBar{w: w, queue: queue, total: total, terminal: ok && term.IsTerminal(int(file.Fd())), shown: time.Now()}
}

func (p *progressBar) show(c auditor.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := linesEvery
	if p.terminal {
		every = barEvery
	}
	if time.Since(p.shown) < every {
		return
	}
	p.shown, p.drawn = time.Now(), true
	before, after := "bridge: ", "\n"
	if p.terminal {
		before, after = "\r"+p.bar(c.Looked), "\x1b[K"
	}
	// There is nobody to tell that a terminal is closed.
	_, _ = fmt.Fprintf(p.w, "%squeue %s: %s, %d put back%s", before, p.queue, p.share(c.Looked), c.PutBack, after)
}

func (p *progressBar) share(looked int64) string {
	if p.total == 0 {
		return count(int(looked), "row")
	}
	return fmt.Sprintf("%d of %s", looked, count(int(max(looked, p.total)), "row"))
}

func (p *progressBar) bar(looked int64) string {
	if p.total == 0 {
		return ""
	}
	full := int(min(looked, p.total) * barWidth / p.total)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] "
}

// end removes the bar.
func (p *progressBar) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}
