package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// measureLimit ends a measurement that hangs.
const measureLimit = 15 * time.Minute

// errSkip says that something cannot be measured on this machine.
var errSkip = errors.New("skipped")

// bench is what all parts use.
type bench struct {
	settings

	root, dir string
	binary    string // of the bridge
	// slack is how many times longer than on an idle machine scheduling may take.
	slack int
	load  float64 // of others, at the start
	slow  float64 // percent of pages that are slow to touch
}

// newBench builds the bridge.
func newBench(ctx context.Context, s settings, root string) (*bench, error) {
	dir, err := os.MkdirTemp("", "delaybridge-compare-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, root: root, dir: dir, slack: 1, load: loadAverage()}
	if b.binary, err = trial.Build(ctx, dir); err == nil {
		b.slow, err = slowPages(ctx)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// part is what is measured and shown together.
type part struct {
	name, title, about string
	columns            []column
	pairs              []pair
	// open starts what its contenders share.
	open func(ctx context.Context, b *bench) (*field, error)
	// text, instead of open, runs another program and returns what it prints.
	text func(ctx context.Context, b *bench) (string, error)
}

// field is a part's contenders, and what they share.
type field struct {
	contenders []contender
	versions   []string
	close      func()
}

// contender is one of those that are compared.
type contender struct {
	name    string
	measure func(ctx context.Context) (sample, error)
}

// metric names a figure; sample is what one measurement gave.
type (
	metric string
	sample map[metric]float64
)

// measure measures a part and keeps what it has after each contender; what was
// broken off goes on. A contender that fails does not keep the others from being
// measured.
func (b *bench) measure(ctx context.Context, p part) (err error) {
	r := b.newRecord(ctx, p)
	if busy := r.busy(); busy != "" {
		fmt.Fprintf(os.Stderr, "%s: %s\n", p.name, busy)
	}
	if p.text != nil {
		if r.Text, err = p.text(ctx, b); err != nil {
			return err
		}
		return r.keep(b.kept)
	}
	f, err := p.open(ctx, b)
	if errors.Is(err, errSkip) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, err)
		return nil
	}
	if err != nil {
		return err
	}
	defer f.close()
	r.Versions = f.versions
	if r, err = b.unfinished(r, f.contenders); err != nil {
		return err
	}
	var problems []error
	for n := range b.repeat {
		for _, c := range f.contenders {
			if r.has(c.name, n) {
				continue
			}
			if err := b.take(ctx, r, c, n); err != nil {
				problems = append(problems, fmt.Errorf("%s, repetition %d: %w", c.name, n+1, err))
				fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, problems[len(problems)-1])
			}
			if ctx.Err() != nil {
				return errors.Join(append(problems, ctx.Err())...)
			}
			if err := r.keep(b.kept); err != nil {
				return err
			}
		}
	}
	return errors.Join(problems...)
}

// errTooSlow says that a measurement has to be repeated with more slack.
var errTooSlow = errors.New("messages were due before all were scheduled")

const mostSlack = 16

// ahead is when messages are due that are scheduled first, so many a second.
func (b *bench) ahead(count, perSecond int) time.Time {
	takes := time.Duration(float64(count)/float64(perSecond)*float64(time.Second)) + 3*time.Second
	return time.Now().Truncate(time.Second).Add(time.Duration(b.slack) * takes)
}

// take measures one contender once.
func (b *bench) take(ctx context.Context, r *record, c contender, n int) error {
	began := time.Now()
	s, err := b.try(ctx, c)
	for ; errors.Is(err, errTooSlow) && b.slack < mostSlack; s, err = b.try(ctx, c) {
		b.slack *= 2
	}
	switch {
	case errors.Is(err, errSkip):
		s = sample{} // It is not missing.
	case err != nil:
		s = nil
	}
	r.add(c.name, n, s)
	if errors.Is(err, errSkip) {
		r.skip(fmt.Sprintf("%s: %v", c.name, err))
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.name, err)
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s %d/%d %-34s %5.1f s  %s\n", r.Part, n+1, b.repeat, c.name, time.Since(began).Seconds(), s)
	return err
}

func (b *bench) try(ctx context.Context, c contender) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	if b.touched {
		defer keepTouched()()
	}
	runtime.GC() // What the one before has left is not for this one to sweep.
	return c.measure(ctx)
}

// output runs a command in the repository and returns what it prints.
func (b *bench) output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stderr = b.root, os.Stderr
	text, err := command.Output()
	return strings.TrimSpace(string(text)), err
}
