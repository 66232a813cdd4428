package command

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestManual: the page has every command, with all of its flags, and groff finds no fault in it.
func TestManual(t *testing.T) {
	t.Parallel()
	o := bridge(t, "", "man")
	require.Equal(t, exitDone, o.code, o.stderr)
	parser, err := newParser(&program{stdout: io.Discard, stderr: io.Discard}, ownName)
	require.NoError(t, err)
	leaves := parser.Model.Leaves(true)
	require.NotEmpty(t, leaves)
	for _, command := range leaves {
		_, section, found := strings.Cut(o.stdout, `.SS "bridge `+escape.Replace(command.Path()))
		if !assert.True(t, found, command.Path()) {
			continue
		}
		section, _, _ = strings.Cut(section, "\n.SS ")
		for _, flag := range command.Flags {
			assert.Contains(t, section, escape.Replace("--"+flag.Name), command.Path())
		}
	}
	assert.NotContains(t, o.stdout, "__complete")
	assert.Contains(t, o.stdout, "\n.EX\n"+`\&bridge run \-\-config bridge.yaml`+"\n.EE\n")

	read := exec.CommandContext(t.Context(), testenv.Program(t, "groff"), "-man", "-wmac", "-Kutf8", "-Tutf8", "-z")
	var problems bytes.Buffer
	read.Stdin, read.Stderr = strings.NewReader(o.stdout), &problems
	require.NoError(t, read.Run(), problems.String())
	assert.Empty(t, problems.String())
}

// TestRenamed: packages call the program delaybridge, and so does its help.
func TestRenamed(t *testing.T) {
	t.Parallel()
	renamed := filepath.Join(t.TempDir(), "delaybridge")
	require.NoError(t, os.Link(binary, renamed))
	for command, want := range map[string]string{
		"get --help":          "Usage: delaybridge get --config",
		"run --help":          "    delaybridge run --config bridge.yaml",
		"schedule --help":     "        delaybridge schedule --config bridge.yaml",
		"config print --help": "LEVEL=debug delaybridge config print --config bridge.yaml",
		"completion bash":     "complete -o default -F _delaybridge delaybridge\n",
		"man":                 `.TH "DELAYBRIDGE" "1"`,
	} {
		out, err := exec.CommandContext(t.Context(), renamed, strings.Fields(command)...).CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), want)
	}
	out, err := exec.CommandContext(t.Context(), renamed, "get").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "see `delaybridge get --help`")
}
