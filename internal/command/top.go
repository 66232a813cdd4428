package command

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type topCommand struct {
	queuesFlags
	Every span `default:"1s" help:"Interval between two readings; longer if a reading takes long."`
	Count int  `placeholder:"N" help:"Number of readings. Default: until q, or ctrl-C."`
}

func (topCommand) Help() string {
	return `On a terminal the table stays in its place; elsewhere each reading is one line per queue. Columns as in
` + "`bridge stats`" + `; rates are those between two readings.

Example:

    bridge top --config bridge.yaml
    bridge top --config bridge.yaml orders --every 10s >> top.log`
}

func (c topCommand) Run(p *program) error {
	if c.Count < 0 || c.Every <= 0 {
		return usagef("--every and --count must be more than 0")
	}
	all, err := c.open(p)
	if err != nil {
		return err
	}
	defer all[0].close()
	all[0].silent.Stop() // It continues while Redis does not answer, and says so.
	var s screen
	switch {
	case c.json():
		s = &lines{w: p.stdout, output: c.outputFlag}
	case terminal(p.stdout) >= 0:
		full, err := newFullScreen(p, all[0].server, c.outputFlag)
		if err != nil {
			return err
		}
		defer full.close()
		s = full
	default:
		s = &lines{w: p.stdout, output: c.outputFlag}
	}
	return c.run(p, all, s)
}

// screen shows looks.
type screen interface {
	show(looks []look) error
	// quit is closed when the user has had enough; nil if nobody can tell.
	quit() <-chan struct{}
}

func (c topCommand) run(p *program, all []*session, s screen) error {
	var looks []look
	for n := 1; ; n++ {
		began := time.Now()
		looks = lookAt(p.ctx, all, looks)
		if hasQuit(p, s) { // Interrupted, the looks are none.
			return nil
		}
		if err := s.show(looks); err != nil || n == c.Count {
			return err
		}
		took := time.Since(began)
		wait.SleepOrWake(p.ctx, max(time.Duration(c.Every)-took, wait.Rest(took)), s.quit())
		if hasQuit(p, s) {
			return nil
		}
	}
}

// hasQuit reports whether the user has had enough.
func hasQuit(p *program, s screen) bool {
	select {
	case <-s.quit():
		return true
	case <-p.ctx.Done():
		return true
	default:
		return false
	}
}

// terminal is the file descriptor of what is a terminal, -1 of what is none.
func terminal(file any) int {
	if f, ok := file.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		return int(f.Fd())
	}
	return -1
}

// lines is a line a queue and look.
type lines struct {
	w      io.Writer
	output outputFlag
	begun  bool
}

func (*lines) quit() <-chan struct{} { return nil }

const lookLine = "%-24s %-20s %9v %9v %10v %9v %9v %9v %10v %5v %8v %8v %s\n"

func (s *lines) show(looks []look) error {
	if !s.begun && !s.output.json() {
		header := []any{"TIME"}
		for _, column := range narrowLook {
			header = append(header, column)
		}
		if _, err := fmt.Fprintf(s.w, lookLine, header...); err != nil {
			return err
		}
	}
	s.begun = true
	for i := range looks {
		l := &looks[i]
		var err error
		switch {
		case s.output.json():
			err = writeJSON(s.w, l.view())
		case l.hasFailed():
			_, err = fmt.Fprintf(s.w, "%-24s %-20s %v\n", formatTime(time.Now()), l.Queue.Name, operate.Plain(l.err))
		default:
			_, err = fmt.Fprintf(s.w, lookLine, append([]any{formatTime(l.At)}, l.cells()[:len(narrowLook)]...)...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fullScreen shows the looks in place.
type fullScreen struct {
	w      io.Writer
	fd     int
	server string
	output outputFlag
	keys   chan struct{}
	undo   func()
}

// Control sequences of terminals.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	ctrlC       = 3
)

// newFullScreen takes the terminal. It starts a goroutine that reads keys, which
// cannot be interrupted and ends with the program.
func newFullScreen(p *program, server string, output outputFlag) (*fullScreen, error) {
	s := &fullScreen{w: p.stdout, fd: terminal(p.stdout), server: server, output: output, keys: make(chan struct{}), undo: func() {}}
	if in := terminal(p.stdin); in >= 0 {
		state, err := term.MakeRaw(in)
		if err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		s.undo = func() { _ = term.Restore(in, state) } // There is nothing else to try.
		go s.read(p.stdin)
	}
	_, err := io.WriteString(s.w, enterScreen)
	return s, err
}

func (s *fullScreen) read(stdin io.Reader) {
	defer close(s.keys)
	key := make([]byte, 1)
	for {
		if _, err := stdin.Read(key); err != nil || key[0] == 'q' || key[0] == 'Q' || key[0] == ctrlC {
			return
		}
	}
}

func (s *fullScreen) quit() <-chan struct{} { return s.keys }

func (s *fullScreen) close() {
	_, _ = io.WriteString(s.w, leaveScreen) // There is nowhere to report it.
	s.undo()
}

func (s *fullScreen) show(looks []look) error {
	width, height, err := term.GetSize(s.fd)
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	text, err := s.text(looks)
	if err != nil {
		return err
	}
	var out strings.Builder
	_, _ = out.WriteString(toTop)
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if i == height {
			break
		}
		if i > 0 {
			_, _ = out.WriteString("\r\n")
		}
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		_, _ = out.WriteString(line + clearLine)
	}
	_, err = io.WriteString(s.w, out.String()+clearBelow)
	return err
}

// text is the whole screen.
func (s *fullScreen) text(looks []look) (string, error) {
	var w bytes.Buffer
	_, _ = fmt.Fprintf(&w, "bridge top   %s   redis at %s   q quits\n\n", formatTime(time.Now()), s.server) // It never fails.
	list := s.output.listing(&w, lookColumns...)
	for i := range looks {
		if !looks[i].hasFailed() {
			if err := list.row(nil, looks[i].cells()...); err != nil {
				return "", err
			}
		}
	}
	if err := list.end(nil, "no numbers"); err != nil {
		return "", err
	}
	for i := range looks {
		if looks[i].hasFailed() {
			_, _ = fmt.Fprintf(&w, "\nqueue %s: %s\n", looks[i].Queue.Name, operate.Plain(looks[i].err))
		}
	}
	err := describeLooks(&w, looks)
	return w.String(), err
}
