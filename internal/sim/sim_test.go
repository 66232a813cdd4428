package sim

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller"
)

var (
	oneSeed = flag.Uint64("seed", 0, "the one seed to simulate, with its story where -v is set; 0 is as many as -seeds says")
	seeds   = flag.Int("seeds", 100, "how many seeds to simulate")
	first   = flag.Uint64("first", 1, "the first of these seeds")
	shrinks = flag.Bool("shrink", false, "make the story of a seed that fails as short as it can be")
)

// told is what a story has come to.
type outcome struct {
	failed string
	trace  string
	lines  int
	pairs  map[string]int
	asked  int // commands of Redis
	lives  int
}

// TestSimulation simulates many seeds, and looks whether each pair of conditions has met.
func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		var log func(string, ...any)
		if testing.Verbose() {
			// A write of its own for each line would change which goroutine runs next.
			var story bytes.Buffer
			log = func(format string, args ...any) { fmt.Fprintf(&story, format+"\n", args...) }
			defer func() { _, _ = os.Stdout.Write(story.Bytes()) }()
		}
		o := simulate(t, *oneSeed, nil, log)
		if o.failed != "" && *shrinks {
			shrink(t, *oneSeed, o.failed)
		}
		t.Logf("seed %d: trace %s, %d lines, %d messages, %d commands", *oneSeed, o.trace, o.lines, o.lives, o.asked)
		if o.failed != "" {
			t.Fatalf("seed %d: %s", *oneSeed, o.failed)
		}
		return
	}
	met := map[string]int{}
	began := time.Now()
	commands, lives := 0, 0
	for seed := range uint64(*seeds) {
		o := simulate(t, *first+seed, nil, nil)
		for pair, n := range o.pairs {
			met[pair] += n
		}
		commands, lives = commands+o.asked, lives+o.lives
		if o.failed != "" {
			t.Fatalf("seed %d: %s\nrun it again with -run TestSimulation -v -seed %d", *first+seed, o.failed, *first+seed)
		}
	}
	took := time.Since(began)
	t.Logf("%d seeds in %s (%s each): %d messages, %d commands", *seeds, took.Round(time.Millisecond), (took / time.Duration(*seeds)).Round(time.Millisecond), lives, commands)
	for i, a := range conditions {
		for _, b := range conditions[i+1:] {
			if met[a+" × "+b] == 0 {
				t.Errorf("%s and %s never met", a, b)
			}
		}
	}
}

// simulate tells the story of a seed, without those decisions.
func simulate(t *testing.T, seed uint64, without map[int]bool, log func(string, ...any)) (o outcome) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // It would change which goroutine runs first.
	isTold := false
	defer func() {
		if !isTold {
			fmt.Printf("seed %d: goroutines are left at its end, or one has panicked\n", seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		wait.Began = time.Now()
		w := newWorld(t, newPlan(seed, without), log)
		w.live()
		o = outcome{w.failed, fmt.Sprintf("%016x", w.hash.Sum64()), w.lines, w.pairs, w.redis.commands, len(w.model.lives)}
	})
	isTold = true
	return o
}

// live is the whole story.
func (w *world) live() {
	p := w.plan
	p.producers = []*producer{w.startProducer("producer1", true), w.startProducer("producer2", false)}
	p.operator = w.startOperator()
	for range p.bridges {
		w.startBridge()
	}
	for _, d := range p.decisions {
		w.after(d.at, fmt.Sprintf("decision %d: %s", d.index, d.kind), func() {
			if w.isOver {
				return
			}
			if d.kind == "burst" {
				w.burst(d)
			} else {
				w.trouble(d)
			}
		})
	}
	for until := 10 * time.Second; until <= p.span && !w.hasFailed(); until += 10 * time.Second {
		w.run(until)
		w.model.sound()
	}
	w.heal()
	w.run(w.now() + simSettle)
	w.model.overdue(simSettle)
	for until := w.now() + simHealed; w.now() < until && w.model.waits() > 0 && !w.hasFailed(); {
		w.run(w.now() + 10*time.Second)
	}
	if n := w.model.waits(); n > 0 {
		w.fail("I7: %d messages wait %s after all trouble was over", n, simHealed)
	}
	w.end()
	if !w.hasFailed() {
		w.model.sound()
		w.model.check()
	}
}

// heal ends all trouble: what is left in the queue of events to end it changes nothing.
func (w *world) heal() {
	w.tell("healed")
	w.healed = true
	w.broker.isDown, w.redis.isFlaky, w.redis.isSlow, w.redis.replicas = false, false, false, true
	w.redis.leave(false)
	clear(w.broker.modes)
	w.redis.set(0)
	w.change(func(policy *poller.Policy) { policy.Rates = poller.Rates{} })
	w.actor("healer", rand.New(rand.NewPCG(1, 1)), func(a *actor) {
		for _, topic := range append([]string{""}, simTopics...) {
			a.resume(topic)
		}
	})
	if len(w.plan.fleet.all) == 0 {
		w.startBridge()
	}
}

// end stops everything, and waits until all goroutines have ended.
func (w *world) end() {
	w.isOver = true
	for _, b := range slices.Clone(w.plan.fleet.all) {
		if w.hasFailed() {
			b.crash()
			continue
		}
		b.drain(20*time.Second, func(err error) {
			if err != nil {
				w.fail("I13: %s: %s", b.h.name, err)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		w.plan.actors.Wait()
		close(over)
	}()
	if w.hasFailed() {
		for _, h := range w.hosts {
			h.die()
		}
	}
	w.drainEvents(over)
	for _, p := range w.plan.producers {
		_ = p.rdb.Close()
	}
	_ = w.plan.operator.rdb.Close()
	time.Sleep(5 * time.Minute) // What was cut off ends by itself.
}

// drainEvents goes on until all actors and bridges have ended.
func (w *world) drainEvents(over chan struct{}) {
	failed := w.failed
	w.failed = ""
	for until := w.now() + 30*time.Minute; w.now() < until; {
		w.run(w.now() + time.Second)
		if failed == "" {
			failed = w.failed
		}
		w.failed = ""
		if isClosed(over) && !slices.ContainsFunc(w.plan.fleet.ever, func(b *bridge) bool { return !isClosed(b.gone) }) {
			break
		}
	}
	w.failed = failed
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestReplays has seeds tell their stories twice.
func TestReplays(t *testing.T) {
	for seed := range uint64(*seeds) / 2 {
		a, b := simulate(t, *first+seed, nil, nil), simulate(t, *first+seed, nil, nil)
		require.Equal(t, a.trace, b.trace, "seed %d", *first+seed)
	}
}

func shrink(*testing.T, uint64, string) {}

var _ = context.Background
