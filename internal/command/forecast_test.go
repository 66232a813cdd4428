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
