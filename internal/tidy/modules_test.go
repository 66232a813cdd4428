package tidy_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ourModule = "github.com/delaybridge/delaybridge"

// sdk are the modules that a producer requires, each with what it may bring: a producer
// takes over all of it.
var sdk = map[string][]string{
	"internal/engine": {
		"github.com/cespare/xxhash/v2", "github.com/netresearch/go-cron", "github.com/oklog/ulid/v2", "github.com/redis/go-redis/v9", "go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/trace",
		"golang.org/x/sync", "golang.org/x/sys",
	},
	"delay":        {"github.com/alicebob/miniredis/v2", "github.com/oklog/ulid/v2", "github.com/redis/go-redis/v9", "go.opentelemetry.io/otel/trace"},
	"delay/outbox": {"github.com/jackc/pgx/v5", "github.com/oklog/ulid/v2", "go.opentelemetry.io/otel/trace"},
}

// forTests are required by the tests of the modules alone.
var forTests = []string{
	"github.com/alicebob/miniredis/v2", "github.com/go-sql-driver/mysql", "github.com/lib/pq", "github.com/redis/go-redis/v9",
	"github.com/stretchr/testify", "go.uber.org/goleak", "golang.org/x/sync", "pgregory.net/rapid",
}

// sdkGo is the oldest Go that producers may build with: two releases are maintained, and
// who upgrades late has one more.
const sdkGo = "1.25.0"

// goMod is what `go mod edit -json` prints of a go.mod.
type goMod struct {
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct{ Old, New struct{ Path string } }
}

func readModule(t *testing.T, dir string) (m goMod) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(repository, dir, "go.mod")).Output()
	require.NoError(t, err, dir)
	require.NoError(t, json.Unmarshal(out, &m), dir)
	return m
}

// TestModules: the modules of the SDK bring little, and all of ours that require each
// other do so at one version, which the repository replaces by its folders.
func TestModules(t *testing.T) {
	t.Parallel()
	versions := map[string]bool{}
	for _, dir := range modules(t) {
		m := readModule(t, dir)
		var siblings, replaced []string
		for _, r := range m.Require {
			if strings.HasPrefix(r.Path, ourModule) {
				siblings, versions[r.Version] = append(siblings, r.Path), true
			} else if allowed, is := sdk[dir]; is && !r.Indirect {
				assert.Contains(t, append(allowed, forTests...), r.Path, "%s: a producer would take it over", dir)
			}
		}
		for _, r := range m.Replace {
			replaced = append(replaced, r.Old.Path)
			from, err := filepath.Rel(dir, path.Join(".", strings.TrimPrefix(r.Old.Path, ourModule)))
			require.NoError(t, err)
			assert.Equal(t, from, filepath.Clean(r.New.Path), "%s: %s", dir, r.Old.Path)
		}
		assert.Subset(t, replaced, siblings, dir)
		if _, is := sdk[dir]; is {
			assert.Equal(t, sdkGo, m.Go, "%s: the Go of producers", dir)
		}
	}
	assert.Len(t, versions, 1, "scripts/release.sh sets the version of all")
}

// TestMakefileKnowsModules: what the Makefile does to all modules it does to all.
func TestMakefileKnowsModules(t *testing.T) {
	t.Parallel()
	text := read(t, "Makefile")
	var known []string
	for _, list := range regexp.MustCompile(`(?m)^(?:SDK|APART) := (.*)$`).FindAllStringSubmatch(string(text), -1) {
		known = append(known, strings.Fields(list[1])...)
	}
	assert.ElementsMatch(t, modules(t), append(known, "."))
	assert.Subset(t, known, slices.Collect(maps.Keys(sdk)))
}

// modules are the folders with a go.mod.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	for _, file := range files(t, "go.mod") {
		dirs = append(dirs, path.Dir(file))
	}
	return dirs
}
