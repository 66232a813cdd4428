package statespace

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

var most = flag.Int("modelsteps", 3000, "how many steps of a model's state space its test takes; 0: all")

// World is what a model is about: the real thing, driven step by step. S is the model's state.
type World[S any] interface {
	// Begin makes it as the model is at first; the walk is what will follow.
	Begin(t testing.TB, walk []Step)
	// Take does what the model does from one state to the next, and returns what is wrong with an answer.
	Take(t testing.TB, action string, before, after *S) error
	// Seen are the world's state and the model's, as far as they can be compared.
	Seen(t testing.TB, model *S) (world, want any)
}

// Play takes walks of a state space, and compares after each step. With -modelsteps it leaves out walks, spread evenly.
func Play[S any](t *testing.T, model, config string, world World[S]) {
	root, err := service.Root()
	require.NoError(t, err)
	dir := filepath.Join(root, "docs", "model")
	g, err := Load(filepath.Join(dir, config+".json.gz"))
	require.NoError(t, err)
	source, err := Source(dir, model, config)
	require.NoError(t, err)
	require.Equal(t, source, g.Source, "%s.tla or %s.cfg has changed: see docs/model/README.md, Tests made from the models", model, config)
	walks := g.Walks()
	sum := 0
	for _, walk := range walks {
		sum += len(walk)
	}
	stride := 1
	if *most > 0 {
		stride = max(1, sum / *most)
	}
	taken, edges, walked, again := 0, map[int]bool{}, 0, 0
	for i := stride / 2; i < len(walks); i += stride {
		walked++
		taken += len(walks[i])
		for _, step := range walks[i] {
			edges[step.edge] = true
		}
		playAgain(t, &again, func() error {
			return g.play(t, walks[i], world.Begin, func(action string, before, after json.RawMessage) error {
				return take(t, world, action, before, after)
			})
		})
	}
	t.Logf("%s: %d states, %d of %d steps by %d walks of %d steps", config, len(g.States), len(edges), len(g.Edges), walked, taken)
}

// A walk takes milliseconds. One that takes nearly as long as the shortest deadline of what the
// models are about, on a machine that stands still, may fail for that: it is played again. A test
// does that a few times only, since a machine seldom stands still and a defect fails again.
const (
	tooSlow   = time.Second
	mostAgain = 3
)

// Patient has the Redis client at a URL wait until such a machine goes on, so that only a walk's own deadlines end it.
const Patient = "?read_timeout=1m"

// playAgain plays a walk until it passes; again counts what is played once more.
func playAgain(t *testing.T, again *int, play func() error) {
	t.Helper()
	for {
		began := time.Now()
		err := play()
		if err == nil {
			return
		}
		took := time.Since(began)
		require.Truef(t, took >= tooSlow && *again < mostAgain, "after %s: %v", took, err)
		*again++
		t.Logf("a walk that took %s is played again: %v", took, err)
	}
}

func take[S any](t testing.TB, world World[S], action string, before, after json.RawMessage) error {
	var from, to S
	require.NoError(t, json.Unmarshal(before, &from))
	require.NoError(t, json.Unmarshal(after, &to))
	if err := world.Take(t, action, &from, &to); err != nil {
		return err
	}
	got, should := world.Seen(t, &to)
	if is, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", should); is != want {
		return fmt.Errorf("%w\n  is     %s\n  wanted %s", errState, is, want)
	}
	return nil
}

var errState = errors.New("the state is another")

func (g *Graph) play(t *testing.T, walk []Step, begin func(testing.TB, []Step), take func(action string, before, after json.RawMessage) error) error {
	t.Helper()
	begin(t, walk)
	before, story := g.States[0], ""
	for _, step := range walk {
		story += fmt.Sprintf("\n  %s: %s", step.Action, step.State)
		if err := take(step.Action, before, step.State); err != nil {
			return fmt.Errorf("%w, after:%s", err, story)
		}
		before = step.State
	}
	return nil
}
