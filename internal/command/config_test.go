package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const badConfig = `redis: {url: "redis://user:hidden@127.0.0.1:6379/0"}
queues:
  orders: {shards: 0, sink: nowhere}
sinks:
  events: {type: nats, url: "nats://127.0.0.1:4222"}
bogus: 1
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	file := writeFile(t, badConfig)
	validate := bridge(t, "", "config", "validate", "--config", file)
	assert.Equal(t, exitUsage, validate.code)
	assert.Empty(t, validate.stdout)
	for _, want := range []string{"3 problems", "line 3: queues.orders.shards: ", "line 3: queues.orders.sink: ", "line 6: bogus: "} {
		assert.Contains(t, validate.stderr, want)
	}
	for _, args := range [][]string{
		{"run"}, {"config", "print"}, {"get", "--queue", "orders", "--id", "a"}, {"dead", "list", "--queue", "orders"},
	} {
		assert.Equal(t, validate, bridge(t, "", append(args, "--config", file)...), "the same words: %v", args)
	}
	o := bridge(t, "", "config", "validate", "--config", file, "-o", "json")
	code, _ := o.errorOf(t)
	assert.Equal(t, "config", code)
	assert.Contains(t, o.stderr, validate.stderr)
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	file := setup(t).file
	assert.Equal(t, outcome{0, file + " is valid: 2 queues, 1 sink\n", ""}, bridge(t, "", "config", "validate", "--config", file))
	assert.Equal(t, map[string]any{"config": file, "valid": true}, bridge(t, "", "config", "validate", "--config", file, "-o", "json").object(t))
}

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	file := writeFile(t, strings.NewReplacer("shards: 0", "shards: 3", "nowhere", "events", "bogus: 1", "").Replace(badConfig))
	o := bridge(t, "", "config", "print", "--config", file)
	assert.Equal(t, exitDone, o.code)
	assert.NotContains(t, o.stdout, "hidden")
	assert.Contains(t, o.stdout, "drain_timeout: 20s")
	again := bridge(t, "", "config", "print", "--config", writeFile(t, o.stdout))
	assert.Equal(t, o, again, "what is printed can be loaded")
}

func TestConfigSchema(t *testing.T) {
	t.Parallel()
	o := bridge(t, "", "config", "schema")
	require.Equal(t, exitDone, o.code)
	var schema map[string]any
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &schema))
	assert.Contains(t, schema["properties"], "queues")
}

func TestHelp(t *testing.T) {
	t.Parallel()
	o := bridge(t, "", "--help")
	assert.Equal(t, exitDone, o.code)
	for _, command := range []string{"dev", "run", "schedule", "cancel", "reschedule", "get", "dead purge", "config schema", "version"} {
		assert.Contains(t, o.stdout, "  "+command+" ")
		if command == "version" {
			continue
		}
		help := bridge(t, "", append([]string{"help"}, strings.Fields(command)...)...)
		assert.Equal(t, exitDone, help.code)
		assert.Contains(t, help.stdout, "Example:\n\n    ", command)
		assert.Contains(t, help.stdout, "bridge "+command)
	}
	assert.Regexp(t, `^bridge `+release+` \(commit .+, go`, bridge(t, "", "version").stdout)
}
