package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSize prints figures, what they rest on and what they leave out, for people and for programs.
func TestSize(t *testing.T) {
	t.Parallel()
	o := bridge(t, "", "size", "--rate", "1000/s", "--delay", "30m")
	require.Equal(t, exitDone, o.code, o.stderr)
	for _, want := range []string{
		`waiting +1800000 `, `waiting at most +5400000 +after the broker was away for 1h0m`, `a message +\d+ B `, `maxmemory +[\d.]+ GiB `, `budget +[\d.]+ GiB `,
		`shards +8 `, `primaries +1 +one Redis is enough`, `MEASURED, on .*Redis \d`, ` 270 bytes a message: .*\(.*operations.md#budget\)`, `NOT COUNTED\nthe network`,
	} {
		assert.Regexp(t, want, o.stdout)
	}
	assert.NotContains(t, o.stdout, "OUTBOX")
	assert.NotContains(t, o.stdout, "repl-backlog-size")

	o = bridge(t, "", "size", "--rate", "200", "--delay", "7d", "--body", "2KiB", "--replicas", "1", "--outbox", "--keep", "2h", "-o", "json")
	require.Equal(t, exitDone, o.code, o.stderr)
	object := o.object(t)
	assert.InDelta(t, 200*3600, object["waiting"], 0, "the horizon is an hour")
	outbox, _ := object["outbox"].(map[string]any)
	assert.InDelta(t, 200*(7*24+2)*3600, outbox["rows"], 0)
	for _, name := range []string{"constants", "unknown", "machine", "memory", "disk", "replica", "budget_bytes", "cpu", "connections"} {
		assert.NotEmpty(t, object[name], name)
	}
	o = bridge(t, "", "size", "--rate", "200", "--delay", "7d", "--replicas", "1", "--outbox")
	assert.Contains(t, o.stdout, "OUTBOX")
	assert.Contains(t, o.stdout, "repl-backlog-size")
}

// TestSizeRefuses: a flag that is wrong is named, with its value and its limit.
func TestSizeRefuses(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--rate 0 --delay 1m":                         `--rate: "0" is not a rate`,
		"--rate 2000000/s --delay 1m":                 "--rate: 2e+06 must be from 0.001 to 1000000",
		"--rate 5 --delay 1m --peak 4":                "--peak: 4 must be from the rate, 5 to 1000000",
		"--rate 5 --delay 0s":                         "--delay: 0s must be from 1ms to 87600h0m0s",
		"--rate 5 --delay 20000d":                     "--delay: 480000h0m0s must be from 1ms to 87600h0m0s",
		"--rate 5 --delay soon":                       `--delay: "soon" is not a duration`,
		"--rate 5 --delay 1m --body 2MiB":             "--body: 2097152 must be from 0 to",
		"--rate 5 --delay 1m --body much":             `--body: "much" is not a size`,
		"--rate 5 --delay 1m --id 0":                  "--id: 0 must be at least 1",
		"--rate 5 --delay 1m --id 600":                "--id: 600 must be from 1 to 510",
		"--rate 5 --delay 1m --headers=-1":            "--headers: -1 must be from 0 to",
		"--rate 5 --delay 1m --replicas 9":            "--replicas: 9 must be from 0 to 5",
		"--rate 5 --delay 1m --outage 99d":            "--outage: 2376h0m0s must be from 0s to 720h0m0s",
		"--rate 5 --delay 1m --keep 1h":               "give --outbox, too",
		"--rate 5 --delay 1m --outbox --horizon 1ms":  "--horizon: 1ms must be from 1s to 87600h0m0s",
		"--rate 5 --delay 1m --outbox --keep 999999h": "--keep: 999999h0m0s must be from 0s to 87600h0m0s",
	} {
		o := bridge(t, "", append([]string{"size"}, strings.Fields(flags)...)...)
		assert.Equal(t, exitUsage, o.code, flags)
		assert.Contains(t, o.stderr, want, flags)
	}
}
