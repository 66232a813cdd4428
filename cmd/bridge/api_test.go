package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// curlExample is an indented command of docs/api.md, with the lines that go on with it.
var curlExample = regexp.MustCompile(`(?m)^ {4}(curl (?:[^\n]*\\\n)*[^\n]*)$`)

// TestAPIExamples runs the examples of docs/api.md, in their order, against a bridge.
func TestAPIExamples(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "curl")
	addr := freeAddr(t)
	f := setupWith(t, 2, testenv.NATS(t), addr)
	p := start(t, os.Environ(), "run", "--config", f.file)
	p.awaitPolling()
	page, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	examples := curlExample.FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(examples), 13)
	for _, example := range examples {
		script := strings.ReplaceAll(example[1], "127.0.0.1:8080", addr)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(script, "curl", "curl -sS --fail-with-body --max-time 60", 1)).CombinedOutput()
		require.NoError(t, err, "%s\n%s", example[1], out)
		assert.True(t, json.Valid(out), "%s\n%s", example[1], out)
	}
	forecast := f.ok("forecast", "-o", "json").object(t)
	assert.InDelta(t, 2, forecast["later"], 0, "payment-7 and b")
}

// TestForecast draws what falls due, with what is due now and what is later.
func TestForecast(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "due", "x")
	for _, id := range []string{"a", "b"} {
		f.ok("schedule", "--topic", "t", "--in", "90m", "--id", id, "x")
	}
	f.ok("schedule", "--topic", "t", "--in", "9d", "--id", "later", "x")
	text := f.ok("forecast").stdout
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 1+1+24+1+1, text)
	assert.Regexp(t, `^ *due now +1 +\d+(\.\d)? B +#{25}$`, lines[1])
	assert.Regexp(t, `Z +2 +\d+(\.\d)? B +#{50}$`, lines[3])
	assert.Regexp(t, `^ *later +1 `, lines[26])
	assert.Regexp(t, `^bytes: \d+ ± \d+ a message, of 4 messages measured$`, lines[27])
	object := f.ok("forecast", "--step", "1d", "--to", "2999-01-01T00:00:00Z", "--from", "2998-01-01T00:00:00Z", "-o", "json").object(t)
	assert.Len(t, object["steps"], 365)
	assert.InDelta(t, 3, object["before"], 0)
	o := f.run("forecast", "--step", "1s")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "more than 1440 steps")
}
