package trial_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/test/trial"
)

var soak = flag.Duration("soak", 0, "how long TestSoak takes; without it, that is skipped")

// TestSoak runs three bridges before each broker in turn. In each round messages are scheduled, cancelled and
// rescheduled while bridges, Redis and the broker die or hang, several at a time; then all of them run again, and
// everything must be out. It checks I1 to I3 and I6, and that a bridge which is never killed needs no more memory
// and goroutines at the end than in the middle.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("runs with -soak only")
	}
	for _, broker := range []string{"nats", "kafka", "rabbitmq"} {
		t.Run(broker, func(t *testing.T) {
			w := newWorld(t, trial.Options{Broker: broker, Shards: 8, Redis: persistent("--appendfsync", "always")})
			startBridges(t, w, 2)
			var needs []need
			for end := time.Now().Add(*soak / 3); time.Now().Before(end); {
				soakRound(t, w, len(needs))
				needs = append(needs, needOf(t, w.Bridge))
				t.Log(needs[len(needs)-1])
			}
			third := len(needs) / 3
			if third == 0 {
				t.Logf("%d rounds are too few to compare what the bridge needs", len(needs))
				return
			}
			middle, last := medianOf(needs[third:len(needs)-third]), medianOf(needs[len(needs)-third:])
			t.Logf("%d rounds; in the middle %s, at the end %s", len(needs), middle, last)
			assert.Less(t, last.heap, middle.heap*3/2+8<<20, "the heap grows")
			assert.Less(t, last.resident, middle.resident*5/4, "the memory grows")
			assert.Less(t, last.goroutines, middle.goroutines+20, "goroutines are left behind")
		})
	}
}

// soakRound is half a minute of load and trouble, and what comes of it.
func soakRound(t *testing.T, w *trial.World, round int) {
	t.Helper()
	before, err := w.Totals(t.Context())
	require.NoError(t, err)
	w.Topic, w.Ledger = fmt.Sprint("soak-", round), trial.NewLedger()
	require.NoError(t, w.Broker.MakeTopic(t.Context(), w.Topic))
	stop := w.Consume(t.Context())

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var calls trial.Calls
	churn := trial.Churn{Steady: trial.Steady{
		Client: w.Client, Topic: w.Topic, Rate: 300, Lead: time.Second, Spread: 20 * time.Second, BodySize: 256, Keys: 200,
		Seed: *seed + uint64(round), IDs: fmt.Sprint(round, "-"), Calls: &calls, //nolint:gosec // rounds are few
	}}
	var happening errgroup.Group
	happening.Go(func() error { return churn.Run(ctx, w.Ledger) })
	harmed := make([]string, 2)
	for i, parts := range [][]part{bridgesOf(w), {{"redis", w.Redis, true}, {w.Broker.Name(), w.Broker.Server(), true}}} {
		random := rand.New(rand.NewPCG(*seed+uint64(round), uint64(i))) //nolint:gosec // a seed makes the run repeatable
		happening.Go(func() (err error) { harmed[i], err = harm(ctx, parts, random); return err })
	}
	require.NoError(t, happening.Wait(), "%s", harmed)

	healed := time.Now()
	if err := drained(t, w); err != nil {
		// If the broker answers nobody else either, the bridges are not why, and it gets what an operator would give it.
		stuck := answers(t, w)
		require.Error(t, stuck, "the broker is well: %v", err)
		t.Log("restarted, since it confirms nothing to another publisher either:", w.Broker.Name(), stuck)
		require.NoError(t, w.Broker.Server().Stop())
		require.NoError(t, w.Broker.Server().Start(t.Context()))
		require.NoError(t, drained(t, w))
	}
	w.Ledger.Await(3*time.Minute, time.Second)
	out := time.Since(healed)
	require.NoError(t, stop())
	report := w.Ledger.Report()
	t.Logf("round %d: %s; all out %s after the last of it\n%s", round, harmed, out.Round(time.Second), report)
	totals, err := w.Totals(t.Context())
	require.NoError(t, err)
	report.OutOfOrder = 0 // Order holds where nothing comes back.
	assertPromises(t, report, totals)
	suspected := func(of trial.Totals) int64 { return of.Counters["reclaimed"] + of.Counters["suspected_duplicates"] }
	assert.LessOrEqual(t, int64(report.Duplicates), suspected(totals)-suspected(before))
	require.False(t, t.Failed())
}

// drained waits until nothing is left. Of some calls nobody knows whether they had an effect: what they left goes out, too.
func drained(t *testing.T, w *trial.World) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err := w.Drained(ctx)
	return err
}

// answers says what the broker does with a message of ours: if it is not confirmed either, the bridges are not why.
func answers(t *testing.T, w *trial.World) error {
	t.Helper()
	publish, end, err := w.Broker.Publisher(5 * time.Second)
	if err != nil {
		return err
	}
	defer end()
	return publish(t.Context(), w.Topic, nil, nil)
}

// part is a process of a world.
type part struct {
	name    string
	process interface {
		Kill() error
		Start(ctx context.Context) error
		Pause() error
		Resume() error
	}
	dies bool // Otherwise it only hangs.
}

// bridgesOf are the bridges; the first one is never killed.
func bridgesOf(w *trial.World) (parts []part) {
	for i, b := range w.Bridges() {
		parts = append(parts, part{fmt.Sprint("bridge ", i), b, i > 0})
	}
	return parts
}

// harm has parts die or hang, one after the other, until ctx ends, and says which; then all run.
func harm(ctx context.Context, parts []part, random *rand.Rand) (harmed string, err error) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for trial.Sleep(ctx, upTo(5*time.Second)) == nil {
		p := parts[random.IntN(len(parts))]
		begin, end, what := p.process.Pause, p.process.Resume, " hangs"
		if p.dies && random.IntN(2) == 0 {
			begin, end, what = p.process.Kill, func() error { return p.process.Start(context.WithoutCancel(ctx)) }, " dies"
		}
		if err := begin(); err != nil {
			return harmed, fmt.Errorf("%s: %w", p.name+what, err)
		}
		_ = trial.Sleep(ctx, upTo(10*time.Second)) // Shorter at the end.
		if err := end(); err != nil {
			return harmed, fmt.Errorf("%s, and goes on: %w", p.name+what, err)
		}
		harmed += p.name + what + ", "
	}
	return harmed, nil
}

// need is what a bridge needs of its machine.
type need struct{ heap, resident, goroutines int64 }

func (n need) String() string {
	return fmt.Sprintf("heap %.1f MiB, resident %.1f MiB, %d goroutines", float64(n.heap)/(1<<20), float64(n.resident)/(1<<20), n.goroutines)
}

// needOf reads what a bridge needs where nothing is the matter. The heap is what was alive at the last collection.
func needOf(t *testing.T, b *trial.Bridge) need {
	t.Helper()
	const live, goroutines = "go_memstats_next_gc_bytes", "go_goroutines"
	values, err := b.Metrics(t.Context(), live, goroutines)
	require.NoError(t, err)
	return need{int64(values[live]) / 2, b.ResidentBytes(), int64(values[goroutines])}
}

// medianOf is the median of each.
func medianOf(needs []need) need {
	median := func(of func(need) int64) int64 {
		var values []int64
		for _, n := range needs {
			values = append(values, of(n))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return need{
		median(func(n need) int64 { return n.heap }), median(func(n need) int64 { return n.resident }),
		median(func(n need) int64 { return n.goroutines }),
	}
}
