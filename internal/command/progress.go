package command

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	// barEvery and linesEvery are how often progress is shown.
	barEvery   = 200 * time.Millisecond
	linesEvery = 5 * time.Second
	barWidth   = 30
)

// progressBar shows how far it is: as a bar on a terminal, else as lines.
type progressBar struct {
	w io.Writer
	// queue is whose things are looked at, noun what one of them is.
	queue, noun string
	terminal    bool

	mu    sync.Mutex
	shown time.Time
	drawn bool
}

func newProgressBar(w io.Writer, queue, noun string) *progressBar {
	return &progressBar{w: w, queue: queue, noun: noun, terminal: terminal(w) >= 0, shown: time.Now()}
}

// show says that so many of about total were looked at, and what came of it; a total of 0
// is not known.
func (p *progressBar) show(looked, total int64, outcome string) {
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
	share := count(int(looked), p.noun)
	if total > 0 {
		share = fmt.Sprintf("%d of %s", looked, count(int(max(looked, total)), p.noun))
	}
	before, after := "bridge: ", "\n"
	if p.terminal {
		before, after = "\r"+bar(looked, total), "\x1b[K"
	}
	// There is nobody to tell that a terminal is closed.
	_, _ = fmt.Fprintf(p.w, "%squeue %s: %s, %s%s", before, p.queue, share, outcome, after)
}

func bar(looked, total int64) string {
	if total == 0 {
		return ""
	}
	full := int(min(looked, total) * barWidth / total)
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
