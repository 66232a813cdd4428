package inputs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/test/flow"
	"github.com/delaybridge/delaybridge/test/inputs"
)

// entrances are all, with how many inputs each tries at least: with fewer it has lost some.
var entrances = []struct {
	name  string
	least int
}{
	{"sdk", 1900},
	{"outbox", 1450},
	{"rows", 750},
	{"http", 3600},
	{"config", 2600},
	{"environment", 1650},
	{"flags", 130},
	{"batch", 1180},
	{"compensation", 1080},
	{"clock", 140},
}

// TestBadInputIsRefused tries all bad inputs at one bridge. Other seeds: the figure.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	// It ends before go test does, which would not say what was waited for.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	binary, err := flow.Build(ctx, t.TempDir())
	require.NoError(t, err)
	w, err := flow.NewWorld(ctx, inputs.World(binary, 2))
	if w != nil {
		t.Cleanup(w.Close)
	}
	require.NoError(t, err)
	reports, err := inputs.Run(ctx, inputs.Options{World: w, Binary: binary, Seed: 1})
	assert.NoError(t, err)
	assert.LessOrEqual(t, len(reports), len(entrances), "entrances that this test does not know")
	for _, e := range entrances {
		i := slices.IndexFunc(reports, func(r inputs.Report) bool { return r.Entrance == e.name })
		if assert.GreaterOrEqual(t, i, 0, "%s was not tried to its end", e.name) {
			check(t, reports[i], e.least)
		}
	}
}

func check(t *testing.T, r inputs.Report, least int) {
	t.Helper()
	t.Logf("%s: %d tried, %d refused", r.Entrance, r.Tried, r.Refused)
	const shown = 50
	for _, fault := range r.Faults[:min(len(r.Faults), shown)] {
		t.Errorf("%s: %s", r.Entrance, fault)
	}
	if count := len(r.Faults); count > shown {
		t.Logf("%s: %d faults in all", r.Entrance, count)
	}
	assert.Equal(t, r.Tried, r.Refused, "%s: refused are all that are tried", r.Entrance)
	assert.GreaterOrEqual(t, r.Tried, least, "%s has lost inputs", r.Entrance)
}
