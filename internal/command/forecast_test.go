package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// TestDemand tells in a line what an autoscaler is told.
func TestDemand(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "due", "x")
	f.ok("schedule", "--topic", "t", "--in", "90s", "--id", "soon", "x")
	f.ok("schedule", "--topic", "t", "--in", "9m", "--id", "later", "x")
	assert.Equal(t, "2 messages: 1 due, 1 more within 120s\n", f.ok("forecast", "--within", "2m").stdout)
	object := f.ok("forecast", "--within", "1h", "-o", "json").object(t)
	assert.Equal(t, []any{3.0, 1.0, 2.0, 0.0, false}, []any{object["messages"], object["due"], object["upcoming"], object["parked"], object["paused"]})
	f.ok("pause")
	assert.Equal(t, "0 messages: 1 due, 1 more within 120s; the queue is paused\n", f.ok("forecast", "--within", "2m").stdout)
	for flag, value := range map[string]string{"--step": "1m", "--to": "2999-01-01T00:00:00Z", "--from": "2998-01-01T00:00:00Z"} {
		o := f.run("forecast", "--within", "2m", flag, value)
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, "--within")
	}
}
