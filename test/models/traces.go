package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

var (
	errUntold  = errors.New("no traces")
	errTraces  = errors.New("the model does not know what happened")
	errControl = errors.New("the model takes what cannot happen")
	errForms   = errors.New("the model and its rules in Go differ")
)

// check has the model checker consume traces, each to its end, and of as many mutants none.
func check(ctx context.Context, tlc, path string, mutants int) error {
	text, err := os.ReadFile(path) //nolint:gosec // it is named for that
	if err != nil {
		return err
	}
	var traces []statespace.Trace
	for line := range bytes.Lines(text) {
		var t statespace.Trace
		if err := json.Unmarshal(line, &t); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		traces = append(traces, t)
	}
	if len(traces) == 0 {
		return fmt.Errorf("%w in %s", errUntold, path)
	}
	come, steps, err := consume(ctx, tlc, traces)
	if err != nil {
		return err
	}
	rejected := 0
	for i, t := range traces {
		if come[i] < len(t.Steps) {
			rejected++
			fmt.Printf("seed %d, %q: step %d is none of the model\n%s", t.Seed, t.Of, come[i]+1, story(t, come[i]))
		}
	}
	fmt.Printf("%d traces of %d steps: %d consumed, %d not\n", len(traces), steps, len(traces)-rejected, rejected)
	if rejected > 0 {
		return fmt.Errorf("%w: %d traces", errTraces, rejected)
	}
	return control(ctx, tlc, mutate(traces, mutants))
}

// mutate makes mutants, of each kind as many.
func mutate(traces []statespace.Trace, most int) (mutants []statespace.Mutant) {
	random := rand.New(rand.NewPCG(traces[0].Seed, 1)) //nolint:gosec // no secret
	for tries := 0; len(mutants) < most && tries < 20*most; tries++ {
		if m, ok := statespace.Mutate(traces[random.IntN(len(traces))], statespace.Kinds[len(mutants)%len(statespace.Kinds)], random); ok {
			mutants = append(mutants, m)
		}
	}
	return mutants
}

// control fails if a mutant is consumed.
func control(ctx context.Context, tlc string, mutants []statespace.Mutant) error {
	traces := make([]statespace.Trace, len(mutants))
	for i, m := range mutants {
		traces[i] = m.Trace
	}
	come, _, err := consume(ctx, tlc, traces)
	if err != nil {
		return err
	}
	taken, kinds := 0, map[string]int{}
	for i, m := range mutants {
		kinds[m.What]++
		if come[i] == len(m.Steps) {
			taken++
			fmt.Printf("seed %d, %q is consumed after a %s of step %d\n%s", m.Seed, m.Of, m.What, m.At+1, story(m.Trace, m.At))
		}
	}
	fmt.Printf("%d mutants %v: %d rejected\n", len(mutants), kinds, len(mutants)-taken)
	if taken > 0 {
		return fmt.Errorf("%w: %d mutants", errControl, taken)
	}
	return nil
}

// story are the steps around one.
func story(t statespace.Trace, at int) string {
	var text strings.Builder
	for i := max(0, at-20); i < min(len(t.Steps), at+3); i++ {
		fmt.Fprintf(&text, "  %4d %s\n", i+1, t.Steps[i])
	}
	return text.String()
}

// at most this many traces go into one run of the model checker: its start takes seconds.
const batch = 500

// consume returns how many steps of each trace the model takes.
func consume(ctx context.Context, tlc string, traces []statespace.Trace) (come []int, steps int, err error) {
	come = make([]int, len(traces))
	for first := range slices.Collect(slices.Chunk(traces, batch)) {
		some := traces[first*batch : min(len(traces), (first+1)*batch)]
		far, err := consumeSome(ctx, tlc, some)
		if err != nil {
			return nil, 0, err
		}
		copy(come[first*batch:], far)
	}
	for i, t := range traces {
		if steps += len(t.Steps); come[i] != statespace.Consume(t) {
			return nil, 0, fmt.Errorf("%w: seed %d, %q: %d steps, and %d\n%s", errForms, t.Seed, t.Of, come[i], statespace.Consume(t), story(t, come[i]))
		}
	}
	return come, steps, nil
}

// far is how the model tells that it has taken a step of a trace.
var far = regexp.MustCompile(`(?m)^<<(\d+), (\d+)>>$`)

func consumeSome(ctx context.Context, tlc string, traces []statespace.Trace) ([]int, error) {
	scratch, err := os.MkdirTemp("", "traces")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // a scratch folder
	module, config := statespace.Module("Sample", traces)
	files := map[string]string{"Sample.tla": module, "Sample.cfg": config}
	for _, name := range []string{"Delay.tla", "DelayTrace.tla"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(scratch, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	out, err := run(ctx, tlc, scratch, scratch, "-config", "Sample.cfg", "Sample.tla")
	if err != nil {
		return nil, err
	}
	come := make([]int, len(traces))
	for _, m := range far.FindAllSubmatch(out, -1) {
		i, _ := strconv.Atoi(string(m[1]))
		n, _ := strconv.Atoi(string(m[2]))
		come[i-1] = max(come[i-1], n)
	}
	return come, nil
}
