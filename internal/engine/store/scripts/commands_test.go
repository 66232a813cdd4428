package scripts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"hscan", "zscan"}, Scan.Commands(), "by the comment")
	assert.Equal(t, []string{"publish", "spublish", "zrem"}, Leave.Commands(), "either of two")
	assert.Contains(t, Cancel.Commands(), "zcard", "by what several scripts have in front")
}

// TestCommandsAreNamed: a call names its command, or its file lists what it may be.
func TestCommandsAreNamed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	shared, err := filepath.Glob("shared/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, shared)
	for _, file := range append(files, shared...) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		unnamed := 0
		for _, match := range called.FindAllSubmatch(text, -1) {
			if !literal.Match(match[1]) {
				unnamed++
			}
		}
		assert.Len(t, listed.FindAll(text, -1), unnamed, "%s: one line CALLS for each call by a variable", file)
	}
}
