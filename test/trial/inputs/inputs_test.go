package inputs

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/test/trial"
)

var seedFlag = flag.Uint64("seed", 1, "makes what is random repeatable")

// TestBadInputIsRefused tries all bad inputs at one bridge, at all entrances at once, and
// those of the clock at a `bridge dev`. The topics are wrong for NATS only, and the rows are
// PostgreSQL's.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	// It ends before go test does, which would not say what was waited for.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	binary, err := trial.Build(ctx, t.TempDir())
	require.NoError(t, err)
	w, err := trial.NewWorld(ctx, trial.Options{
		Binary: binary, Broker: "nats", Shards: 2, Database: "postgres", Outbox: "horizon: 2h", Redis: []string{"--appendonly", "yes"},
	})
	require.NoError(t, err)
	t.Cleanup(w.Close)
	nc, err := natsgo.Connect(w.Broker.Server().URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	kept, err := keep(ctx, w.Client, w.Topic, func(ctx context.Context) (string, error) { return holds(ctx, w) })
	require.NoError(t, err)
	a := aim{w.Queue(), w.Topic, seed(*seedFlag)}
	line := commandLine{binary, w.Bridge.Config, w.Queue()}
	type tried struct {
		entrance
		least int // inputs; with fewer it has lost some
	}
	for _, lane := range [][]tried{
		{{sdkEntrance{a, w.RDB, w.Prefix()}, 1900}},
		{{outboxEntrance{a, w.Database.DB}, 1450}, {rowsEntrance{a, w.Database.DB}, 750}}, // The former counts rows.
		{{httpEntrance{a, w.Bridge.Admin()}, 3600}},
		{{configEntrance{a.seed}, 2600}},
		{{environmentEntrance{}, 1650}},
		{{flagsEntrance{a, line}, 130}},
		{{batchEntrance{a, line, w.Dir}, 1180}},
		{{compensationEntrance{a, w.Broker, nc}, 1080}},
	} {
		t.Run(lane[0].name(), func(t *testing.T) {
			t.Parallel()
			for _, e := range lane {
				process{w.Bridge.Admin(), kept}.try(ctx, t, e.entrance, e.least)
			}
		})
	}
	t.Run("clock", func(t *testing.T) {
		t.Parallel()
		d, err := develop(ctx, binary, w.Dir)
		if d != nil {
			defer d.close()
		}
		require.NoError(t, err)
		client, err := delay.NewClient(d.rdb, "orders")
		require.NoError(t, err)
		kept, err := keep(ctx, client, "order.kept", d.holds)
		require.NoError(t, err)
		process{d.admin, kept}.try(ctx, t, clockEntrance{a.seed, d.admin}, 140)
	})
}

// process is what the inputs are for.
type process struct {
	admin string
	kept  *keptMessages
}

// try tries all inputs of an entrance, then looks whether the process lives and all that
// waited is still there, unchanged.
func (p process) try(ctx context.Context, t *testing.T, e entrance, least int) {
	t.Helper()
	inputs, err := e.inputs(ctx)
	require.NoError(t, err)
	var faults []fault
	for _, one := range inputs {
		if f := one.judge(one.put(ctx)); f.text != "" {
			faults = append(faults, f)
		}
	}
	if a := send(ctx, http.MethodGet, "http://"+p.admin+"/livez", "", nil); a.broken || a.refused {
		faults = append(faults, fault{wrong, "the bridge is not alive: " + a.text})
	}
	changes, err := p.kept.changes(ctx)
	require.NoError(t, err)
	for _, change := range changes {
		faults = append(faults, fault{changed, change})
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return cmp.Compare(a.severity, b.severity) })
	t.Logf("%s: %d tried, %d faults", e.name(), len(inputs), len(faults))
	for _, f := range faults[:min(len(faults), 50)] {
		t.Error(f.text)
	}
	assert.GreaterOrEqual(t, len(inputs), least, "it has lost inputs")
}

// holds says what the queue holds, and what operators can change.
func holds(ctx context.Context, w *trial.World) (string, error) {
	totals, err := w.Totals(ctx)
	if err != nil {
		return "", err
	}
	paused, err := inspect.NewAdmin(w.Store()).Paused(ctx)
	if err != nil {
		return "", err
	}
	jobs, _, err := job.New(w.Store()).List(ctx, "")
	if err != nil {
		return "", err
	}
	level := send(ctx, http.MethodGet, "http://"+w.Bridge.Admin()+"/api/v1/log-level", "", nil)
	return fmt.Sprintf("%d waiting, %d in flight, %d dead, %d scheduled, paused %v, %d jobs, log level %s",
		totals.Waiting, totals.InFlight, totals.Dead, totals.Counters["scheduled"], paused, len(jobs), level.text), nil
}

// input is a bad one at an entrance.
type input struct {
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

// fault is an answer that is wrong; the empty one is none. The worst have the least severity.
type fault struct {
	severity int
	text     string
}

// The severities: broken or accepted; what waits is not as it was; a refusal that names no
// field, nor the text that holds it where that is no JSON, no YAML or no UTF-8.
const (
	wrong = iota
	changed
	unnamed
)

func (i input) judge(a answer) fault {
	const shown = 200
	say := func(severity int, how string) fault {
		return fault{severity, fmt.Sprintf("%s: %.*q: %.*q", how, shown, i.what, shown, a.text)}
	}
	switch {
	case a.broken:
		return say(wrong, "broken")
	case !a.refused:
		return say(wrong, "accepted")
	case !slices.ContainsFunc(i.names, func(name string) bool { return isNamed(a.text, name) }):
		return say(unnamed, "no field named")
	default:
		return fault{}
	}
}

// isNamed reports whether an error's text names a field. A short name is an English
// word, too, so it counts only where a field stands.
func isNamed(text, name string) bool {
	const word = 2
	if len(name) <= word {
		return regexp.MustCompile(`(^|: |field )` + name + `( |:|$)`).MatchString(text)
	}
	return strings.Contains(strings.ToLower(text), strings.ToLower(name))
}

// called is what a call of a Go package has answered. A panic, and an error that is no
// refusal, is broken.
func called(isRefusal func(error) bool, call func() error) (a answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = answer{broken: true, text: fmt.Sprint("panic: ", cause)}
		}
	}()
	err := call()
	if err == nil {
		return answer{text: "no error"}
	}
	refused := isRefusal(err)
	return answer{refused: refused, broken: !refused, text: err.Error()}
}

// sdkInput is a call of the SDK.
func sdkInput(what string, names []string, call func(context.Context) error) input {
	isRefusal := func(err error) bool { return errors.Is(err, delay.ErrInvalid) }
	return input{what, names, func(ctx context.Context) answer { return called(isRefusal, func() error { return call(ctx) }) }}
}
