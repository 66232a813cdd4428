package command

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	f := setup(t)
	complete := func(words ...string) string {
		o := bridge(t, "", append([]string{"__complete", "--"}, words...)...)
		assert.Equal(t, exitDone, o.code, "%+v", o)
		return strings.Join(strings.Fields(o.stdout), " ")
	}
	assert.Equal(t, "shards size stats", complete("s")[len("schedule "):])
	assert.Equal(t, "list set", complete("shards", ""))
	assert.Equal(t, "orders reminders", complete("list", "--config", f.file, "--queue", ""))
	assert.Equal(t, "orders", complete("stats", "-c", f.file, "o"))
	assert.Equal(t, "orders", complete("stats", "--config="+f.file, "o"))
	assert.Empty(t, complete("stats", "--config", f.file, "orders", "o"))
	assert.Equal(t, "json table wide", complete("list", "-o", ""))
	assert.Equal(t, "--queue", complete("list", "--qu"))
	assert.Equal(t, "bash", complete("completion", "b"))
	assert.Empty(t, complete("list", "--queue", ""), "without a configuration")
	assert.NotContains(t, complete(""), "__complete")

	for _, shell := range []string{"bash", "zsh", "fish"} {
		o := bridge(t, "", "completion", shell)
		assert.Equal(t, exitDone, o.code)
		assert.Contains(t, o.stdout, "bridge __complete --")
	}
	o := bridge(t, "", "sttas")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "did you mean")

	bash := testenv.Program(t, "bash")
	script := `bridge() { ` + binary + ` "$@"; }; eval "$(bridge completion bash)"; COMP_WORDS=(bridge stats -c ` + f.file + ` rem); COMP_CWORD=4; _bridge; echo "${COMPREPLY[@]}"`
	out, err := exec.CommandContext(t.Context(), bash, "-c", script).CombinedOutput()
	assert.NoError(t, err)
	assert.Equal(t, "reminders\n", string(out))
}
