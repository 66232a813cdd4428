package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
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
}

// newBench builds the bridge.
func newBench(ctx context.Context, s settings, root string) (*bench, error) {
	dir, err := os.MkdirTemp("", "delaybridge-compare-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, root: root, dir: dir, binary: filepath.Join(dir, "bridge")}
	build := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", b.binary, "./cmd/bridge")
	if output, err := build.CombinedOutput(); err != nil {
		b.close()
		return nil, fmt.Errorf("build the bridge: %w: %s", err, output)
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

// measure measures a part and keeps what it has after each repetition. A contender
// that fails does not keep the others from being measured.
func (b *bench) measure(ctx context.Context, p part) (err error) {
	r := b.newRecord(ctx, p)
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
	var problems []error
	for n := range b.repeat {
		for _, c := range f.contenders {
			if err := b.take(ctx, r, c, n); err != nil {
				problems = append(problems, fmt.Errorf("%s, repetition %d: %w", c.name, n+1, err))
				fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, problems[len(problems)-1])
			}
			if ctx.Err() != nil {
				return errors.Join(append(problems, ctx.Err())...)
			}
		}
		if err := r.keep(b.kept); err != nil {
			return err
		}
	}
	return errors.Join(problems...)
}

// take measures one contender once.
func (b *bench) take(ctx context.Context, r *record, c contender, n int) error {
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	runtime.GC() // What the one before has left is not for this one to sweep.
	began := time.Now()
	s, err := c.measure(ctx)
	r.add(c.name, n, s)
	if errors.Is(err, errSkip) {
		r.skip(fmt.Sprintf("%s: %v", c.name, err))
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.name, err)
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s %d/%d %-34s %5.1f s  %s\n", r.Part, n+1, b.repeat, c.name, time.Since(began).Seconds(), s)
	return err
}

// output runs a command in the repository and returns what it prints.
func (b *bench) output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stderr = b.root, os.Stderr
	text, err := command.Output()
	return strings.TrimSpace(string(text)), err
}
