package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

var (
	oneSeed = flag.Uint64("seed", 0, "the one seed to simulate, with its story where -v is set; 0 is as many as -seeds says")
	seeds   = flag.Int("seeds", 2, "how many seeds to simulate; make sim tells many, and each as it was told before")
	first   = flag.Uint64("first", 1, "the first of these seeds")
	most    = flag.Int("failures", 1, "after how many seeds that fail to end")
	shrinks = flag.Bool("shrink", false, "make the story of a seed that fails as short as it can be")
	without = flag.String("without", "", "decisions of the seed to leave out, as 3,17")
	known   = flag.Bool("known", true, "pass over what is known of clocks that are set, see docs/ARCHITECTURE.md, Known limits")
	until   = flag.Duration("until", 0, "when the story ends, unless 0: what comes then is not told, nor judged")
	watched = flag.String("watch", "", "the id of which the story tells all that Redis does with it")
	inJSON  = flag.Bool("json", false, "tell the outcome of a seed as JSON, for whoever has started the process")
)

// outcome is what a story has come to.
type outcome struct {
	Seed      uint64
	Failed    string // empty: it holds
	Trace     string
	Lines     int // of the story
	Pairs     map[string]int
	Commands  int // of Redis
	Messages  int
	Decisions []int
	Spans     time.Duration // how long it was, by its own clock
	Traces    *kept         // if they were asked for
}

// TestSimulation simulates many seeds, each in a process of its own, so that it is told as it
// is when it is told alone, and looks whether each pair of conditions has met.
func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		simulateOne(t)
		return
	}
	met, failures := map[string]int{}, 0
	began := time.Now()
	var sum outcome
	for o := range eachSeed(t, *first, *seeds, nil) {
		for pair, n := range o.Pairs {
			met[pair] += n
		}
		sum.Commands, sum.Messages, sum.Spans = sum.Commands+o.Commands, sum.Messages+o.Messages, sum.Spans+o.Spans
		if o.Failed != "" {
			t.Errorf("seed %d: %s", o.Seed, o.Failed)
			if failures++; failures >= *most {
				t.Logf("run it again: make sim SEED=%d", o.Seed)
				break
			}
		}
	}
	took := time.Since(began)
	t.Logf("%d seeds in %s: %s, %d messages, %d commands", *seeds, took.Round(time.Millisecond), sum.Spans.Round(time.Minute), sum.Messages, sum.Commands)
	if failures > 0 || *seeds < enough {
		return
	}
	for i, a := range conditions {
		for _, b := range conditions[i+1:] {
			if met[a+" × "+b] == 0 {
				t.Errorf("%s and %s never met", a, b)
			}
		}
	}
}

// enough is how many seeds have each pair of conditions meet.
const enough = 200

// TestReplays tells seeds twice.
func TestReplays(t *testing.T) {
	if !isExact(t) {
		t.Skip("the runtime leaves things to chance here: make sim runs it")
	}
	n := min(50, max(1, *seeds/10))
	traces := map[uint64]string{}
	for o := range eachSeed(t, *first, n, nil) {
		traces[o.Seed] = o.Trace
	}
	same := 0
	for o := range eachSeed(t, *first, n, nil) {
		if o.Trace == traces[o.Seed] {
			same++
		} else {
			t.Errorf("seed %d: trace %s, and then %s", o.Seed, traces[o.Seed], o.Trace)
		}
	}
	t.Logf("%d of %d seeds have told the same story twice", same, n)
}

// isExact reports whether the runtime leaves nothing to chance, see command overlay: then a map
// is walked in the same order again.
func isExact(t *testing.T) (exact bool) {
	synctest.Test(t, func(*testing.T) {
		m := map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true}
		firsts := map[int]bool{}
		for range 64 {
			for k := range m {
				firsts[k] = true
				break
			}
		}
		exact = len(firsts) == 1
	})
	return exact
}

// eachSeed yields the outcomes of seeds, in the order in which they are known.
func eachSeed(t *testing.T, from uint64, n int, leaveOut []int, more ...string) func(func(outcome) bool) {
	return func(yield func(outcome) bool) {
		ctx, cancel := context.WithCancel(t.Context())
		next, outcomes := make(chan uint64), make(chan outcome)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for range runtime.NumCPU() {
			running.Go(func() {
				for seed := range next {
					select {
					case outcomes <- child(ctx, seed, leaveOut, more...):
					case <-ctx.Done():
					}
				}
			})
		}
		go func() {
			defer close(next)
			for i := range uint64(n) {
				select {
				case next <- from + i:
				case <-ctx.Done():
					return
				}
			}
		}()
		for range n {
			if !yield(<-outcomes) {
				return
			}
		}
	}
}

// storyTakes is how long one story may take, by the real clock: a goroutine that never waits, or
// that holds a lock while it does, keeps the story's clock from going on.
const storyTakes = 2 * time.Minute

// child simulates a seed in another process.
func child(ctx context.Context, seed uint64, leaveOut []int, more ...string) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, storyTakes)
	defer cancel()
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(leaveOut), " ", ","), "[]")
	args := append([]string{"-test.run=^TestSimulation$", "-json", "-seed", strconv.FormatUint(seed, 10), "-without", list}, more...)
	cmd := exec.CommandContext(ctx, os.Args[0], args...) //nolint:gosec // it is this program
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	for line := range bytes.Lines(output) {
		if json.Unmarshal(line, &o) == nil && o.Seed == seed {
			return o
		}
	}
	text := string(output)
	return outcome{Seed: seed, Failed: fmt.Sprintf("it did not end: %v: %s", err, text[:min(len(text), 4000)])}
}

// simulateOne tells the story of the one seed.
func simulateOne(t *testing.T) {
	var log func(string, ...any)
	if testing.Verbose() {
		// A write of its own for each line would change which goroutine runs next.
		var story bytes.Buffer
		log = func(format string, args ...any) { fmt.Fprintf(&story, format+"\n", args...) }
		defer func() { _, _ = os.Stdout.Write(story.Bytes()) }()
	}
	leaveOut := map[int]bool{}
	for part := range strings.SplitSeq(*without, ",") {
		if i, err := strconv.Atoi(part); err == nil {
			leaveOut[i] = true
		}
	}
	o := simulate(t, *oneSeed, leaveOut, log)
	if *inJSON {
		line, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.Write(append(line, '\n'))
		return
	}
	if o.Failed != "" && *shrinks {
		shrink(t, o, slices.Sorted(maps.Keys(leaveOut)))
	}
	if o.Failed != "" {
		t.Errorf("seed %d: %s", o.Seed, o.Failed)
	}
	t.Logf("seed %d: trace %s (%d lines, %d messages, %d commands)", o.Seed, o.Trace, o.Lines, o.Messages, o.Commands)
}

// simulate tells the story of a seed, without those decisions.
func simulate(t *testing.T, seed uint64, leaveOut map[int]bool, log func(string, ...any)) (o outcome) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // It would change which goroutine runs first.
	isTold := false
	defer func() {
		if !isTold {
			_, _ = fmt.Fprintf(os.Stdout, "seed %d: goroutines are left at its end, or one has panicked\n", seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		wait.Began = time.Now()
		w := newWorld(t, newPlan(seed, leaveOut), log)
		w.live()
		o = outcome{
			Seed: seed, Failed: w.failed, Trace: fmt.Sprintf("%016x", w.hash.Sum64()), Lines: w.lines, Pairs: w.pairs, Commands: w.redis.commands,
			Messages: len(w.model.lives), Spans: w.ended,
		}
		o.Traces = w.model.traces.keep(seed, *tracesMost)
		for _, d := range w.plan.decisions {
			o.Decisions = append(o.Decisions, d.index)
		}
	})
	isTold = true
	return o
}
