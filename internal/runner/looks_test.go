package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
)

// TestHalfAFileIsNoChange: a file counts as it is at two looks, and once.
func TestHalfAFileIsNoChange(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	const half, whole = "queues:\n  a: {sink: events}\n", "queues:\n  a: {sink: events}\n  b: {sink: events}\n"
	write("bridge.yaml", `{sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}, queue_files: {teams: {files: [team.yaml]}}}`)
	write("team.yaml", whole)
	cfg, err := config.Load(filepath.Join(folder, "bridge.yaml"), nil)
	require.NoError(t, err)
	var l looks
	for i, c := range []struct {
		text string
		want bool
	}{
		{whole, false}, {whole, false}, // It is in force.
		{half, false}, {whole, false}, // It was being written.
		{half, false}, {half, true}, {half, false}, // Somebody means it. It may not have been taken.
		{whole, false}, {half, false}, {half, true},
	} {
		write("team.yaml", c.text)
		assert.Equal(t, c.want, l.note(cfg, cfg.Include()), "%d", i)
	}
}

// TestDeclaredCountsAtOnce: what is declared by the API is never half written, so it counts when it is seen once; a file beside it does not.
func TestDeclaredCountsAtOnce(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("bridge.yaml", `{sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}, queue_files: {teams: {files: [team.yaml]}, api: {}}}`)
	write("team.yaml", "queues: {a: {sink: events}}")
	cfg, err := config.Load(filepath.Join(folder, "bridge.yaml"), nil)
	require.NoError(t, err)
	declared := map[string]string{"b": `{"sink":"events"}`}
	var l looks
	assert.False(t, l.note(cfg, cfg.Declare(nil)))
	assert.True(t, l.note(cfg, cfg.Declare(declared)))
	assert.False(t, l.note(cfg, cfg.Declare(declared)), "it may not have been taken")
	cfg = cfg.With(cfg.Declare(declared))
	assert.False(t, l.note(cfg, cfg.Declare(declared)))
	write("team.yaml", "queues: {a: {sink: events}, c: {sink: events}}")
	assert.False(t, l.note(cfg, cfg.Declare(nil)))
	assert.True(t, l.note(cfg, cfg.Declare(nil)))
}
