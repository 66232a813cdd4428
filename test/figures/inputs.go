package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	// inputsWait is how long an answer may take that comes by itself, as of a row.
	inputsWait = 40 * time.Second
	// faultsShown is how many faults of an entrance are printed.
	faultsShown = 20
)

// noField begins the fault of a refusal that names none.
const noField = "no field named"

// trial is one bad input at an entrance.
type trial struct {
	what string
	// names are what the error may call the field, one of them.
	names []string
	put   func(context.Context) answer
}

// answer is what an entrance says of an input.
type answer struct {
	refused bool
	broken  bool // a crash, a 5xx, or no answer
	text    string
}

// entrance is a way in for what others write.
type entrance struct {
	name string
	// trials makes the inputs; what is answered late is handed in by it, all at once.
	trials func(context.Context) ([]trial, error)
}

// inputs is one run of the figure.
type inputs struct {
	run
	world *flow.World
	// until is how long the entrance under way may take with what it answers late.
	until time.Time
	// ends are what is left to be closed.
	ends []func()
}

// inputsFigure tries bad input at each entrance of one bridge, and then looks
// whether all that waited before is still there, unchanged.
func inputsFigure(ctx context.Context, r run) error {
	if r.broker != "nats" {
		return errors.New("the topics of this figure are wrong for NATS only")
	}
	w, err := flow.NewWorld(ctx, flow.Options{
		Binary: r.binary, Broker: r.broker, Shards: r.shards, Database: "postgres", Outbox: "horizon: 2h",
		Redis: []string{"--appendonly", "yes"},
	})
	if w != nil {
		defer w.Close()
	}
	if err != nil {
		return err
	}
	f := &inputs{run: r, world: w}
	defer func() {
		for _, end := range f.ends {
			end()
		}
	}()
	fmt.Printf("inputs  seed %d\n", r.seed)
	fmt.Printf("inputs  %-13s | %6s %7s %11s %11s | %14s %10s %8s\n",
		"entrance", "tried", "refused", "field named", "limit named", "accepted wrong", "broken", "changed")
	kept, err := keep(ctx, w.Client, w.Topic, func(ctx context.Context) (string, error) { return f.holds(ctx) })
	if err != nil {
		return err
	}
	var problems []error
	for _, e := range f.entrances() {
		problems = append(problems, f.enter(ctx, e, kept, w.Bridge.Admin()))
	}
	return errors.Join(append(problems, f.clock(ctx))...)
}

func (f *inputs) entrances() []entrance {
	return []entrance{
		{"sdk", f.sdk},
		{"outbox", f.outboxSDK},
		{"rows", f.rows},
		{"http", f.http},
		{"config", f.config},
		{"environment", f.environment},
		{"flags", f.flags},
		{"batch", f.batch},
		{"compensation", f.compensation},
	}
}

// random is the same for the same seed and name.
func (f *inputs) random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(f.seed, h.Sum64())) //nolint:gosec // to be repeated
}

// enter tries all inputs of an entrance and prints its line.
func (f *inputs) enter(ctx context.Context, e entrance, kept *keeping, admin string) error {
	trials, err := e.trials(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	var t inputTally
	f.until = time.Now().Add(inputsWait)
	for _, one := range trials {
		t.add(one, one.put(ctx))
	}
	if err := alive(ctx, admin); err != nil {
		t.broken++
		t.faults = append(t.faults, "the bridge is not alive: "+err.Error())
	}
	changes, err := kept.changes(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	t.faults = append(changes, t.faults...)
	slices.SortStableFunc(t.faults, func(a, b string) int { return cmp.Compare(severity(a), severity(b)) })
	fmt.Printf("inputs  %-13s | %6d %7d %11d %11d | %14d %10d %8d\n",
		e.name, t.tried, t.refused, t.field, t.limit, t.accepted, t.broken, len(changes))
	for _, fault := range t.faults[:min(len(t.faults), faultsShown)] {
		fmt.Printf("inputs  %-13s | %s\n", e.name, fault)
	}
	if len(t.faults) > 0 {
		return fmt.Errorf("%s: %d faults", e.name, len(t.faults))
	}
	return nil
}

// severity puts what is merely not said well behind all else.
func severity(fault string) int {
	switch {
	case strings.HasPrefix(fault, noField):
		return 2 //nolint:mnd // the last
	case strings.HasPrefix(fault, "changed"):
		return 1
	default:
		return 0
	}
}

// lateAnswer bounds the wait for an answer that comes by itself: all of an entrance come
// at about the same time, so who asks later waits no longer.
func (f *inputs) lateAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	until := f.until
	if soon := time.Now().Add(time.Second); until.Before(soon) {
		until = soon
	}
	return context.WithDeadline(ctx, until)
}

// inputTally counts what became of the inputs of an entrance.
type inputTally struct {
	tried, refused   int
	field, limit     int // of the refused: the error names it
	accepted, broken int
	faults           []string
}

func (t *inputTally) add(one trial, a answer) {
	t.tried++
	fault := ""
	switch {
	case a.broken:
		t.broken++
		fault = "broken"
	case !a.refused:
		t.accepted++
		fault = "accepted"
	default:
		t.refused++
		if limitWords.MatchString(a.text) {
			t.limit++
		}
		if !slices.ContainsFunc(one.names, func(name string) bool { return names(a.text, name) }) {
			fault = noField
			break
		}
		t.field++
	}
	if fault != "" {
		const shown = 200
		t.faults = append(t.faults, fmt.Sprintf("%s: %.*q: %.*q", fault, shown, one.what, shown, a.text))
	}
}

// limitWords tell a refusal that says what is allowed, or what the value was.
var limitWords = regexp.MustCompile(`(?i)"|\d|allowed|must|give|twice|expected|known|reserved|invalid|missing|needs|takes|leave|is a section|there is no|one of|only|no |not `)

// names reports whether an error's text names a field. A short name is an English
// word, too, so it counts only where a field stands.
func names(text, name string) bool {
	const word = 2
	if len(name) <= word {
		return regexp.MustCompile(`(^|: |field )` + name + `( |:|$)`).MatchString(text)
	}
	return strings.Contains(strings.ToLower(text), strings.ToLower(name))
}

// alive asks whether the bridge lives.
func alive(ctx context.Context, admin string) error {
	a := send(ctx, http.MethodGet, "http://"+admin+"/livez", "", nil)
	if a.broken || a.refused {
		return errors.New(a.text)
	}
	return nil
}

// holds says what the queue holds, and what operators can change.
func (f *inputs) holds(ctx context.Context) (string, error) {
	totals, err := f.world.Totals(ctx)
	if err != nil {
		return "", err
	}
	admin := f.world.Store().Admin()
	paused, err := admin.Paused(ctx)
	if err != nil {
		return "", err
	}
	jobs, _, err := f.world.Store().Jobs().List(ctx, "")
	if err != nil {
		return "", err
	}
	level := send(ctx, http.MethodGet, "http://"+f.world.Bridge.Admin()+"/api/v1/log-level", "", nil)
	return fmt.Sprintf("%d waiting, %d in flight, %d dead, %d scheduled, paused %v, %d jobs, log level %s",
		totals.Waiting, totals.InFlight, totals.Dead, totals.Counters["scheduled"], paused, len(jobs), level.text), nil
}
