package command

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// fields are those that each result about a message has in JSON.
var fields = []string{"id", "key", "queue", "topic", "due_at", "state", "attempt"}

func requireFields(t *testing.T, object map[string]any, more ...string) {
	t.Helper()
	require.Subset(t, slices.Collect(maps.Keys(object)), append(more, fields...))
}

func dueAt(t *testing.T, object map[string]any) time.Time {
	t.Helper()
	text, ok := object["due_at"].(string)
	require.True(t, ok, object)
	due, err := time.Parse("2006-01-02T15:04:05.000Z", text)
	require.NoError(t, err)
	return due
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	f := setup(t)
	before := time.Now()
	object := f.ok("schedule", "--topic", "order.timeout", "--id", "order-42/timeout", "--key", "order-42",
		"--in", "1d", "-o", "json", "hello").object(t)
	requireFields(t, object)
	assert.WithinRange(t, dueAt(t, object), before.Add(24*time.Hour-time.Second), time.Now().Add(24*time.Hour+time.Second))
	delete(object, "due_at")
	assert.Equal(t, map[string]any{
		"id": "order-42/timeout", "key": "order-42", "queue": "orders", "topic": "order.timeout", "state": "scheduled", "attempt": 1.0, "status": "created",
	}, object)

	o := f.ok("schedule", "--topic", "a", "--at", "2030-01-02T03:04:05.6+01:00", "--id", "at", "x")
	assert.Regexp(t, `^scheduled at: due 2030-01-02T02:04:05\.600Z \(in [0-9.]+d\)\n$`, o.stdout)
	assert.Empty(t, o.stderr)

	for _, conflict := range []string{"reject", "replace"} {
		object = f.ok("schedule", "--topic", "a", "--at", "2030-01-02T03:00:00Z", "--spread", "10m", "--id", "wave", "--conflict", conflict, "-ojson", "x").object(t)
		assert.Equal(t, time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC).Add(message.Spread("", "wave", 10*time.Minute)), dueAt(t, object))
	}
	object = f.ok("schedule", "--topic", "a", "--in", "1w", "-ojson", "x").object(t)
	assert.Regexp(t, `^[0-9A-HJKMNP-TV-Z]{26}$`, object["id"])
}

func TestScheduleStandardInput(t *testing.T) {
	t.Parallel()
	f := setup(t)
	args := []string{"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "1h", "--id"}
	body := "two\nlines\x00"
	require.Equal(t, exitDone, bridge(t, body, append(args, "stdin", "--header", "a=b;c=d", "--header", "e=", "-")...).code)
	found, ok, err := inspect.Get(t.Context(), f.queue, "stdin", "")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, body, string(found.Body))
	assert.Equal(t, map[string]string{"a": "b;c=d", "e": ""}, found.Headers)

	o := bridge(t, strings.Repeat("x", 1025), append(args, "large", "-o", "json", "-")...)
	assert.Equal(t, exitUsage, o.code, o)
	code, id := o.errorOf(t)
	assert.Equal(t, []string{"invalid", "large"}, []string{code, id})
	o = bridge(t, strings.Repeat("x", 1024), append(args, "large", "-")...)
	assert.Equal(t, exitUsage, o.code, "id and topic count, too: %+v", o)
}

func TestScheduleConflict(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "first", "--in", "1h", "--id", "a", "x")

	o := f.run("schedule", "--topic", "second", "--in", "2h", "--id", "a", "-o", "json", "x")
	assert.Equal(t, exitRefused, o.code)
	assert.Empty(t, o.stdout)
	code, id := o.errorOf(t)
	assert.Equal(t, []string{"duplicate", "a"}, []string{code, id})

	object := f.ok("schedule", "--topic", "second", "--in", "2h", "--id", "a", "--conflict", "keep", "-o", "json", "x").object(t)
	requireFields(t, object)
	assert.Equal(t, "first", object["topic"])
	assert.Contains(t, f.ok("schedule", "--topic", "second", "--in", "2h", "--id", "a", "--conflict", "keep", "x").stdout, "kept a")

	o = f.ok("schedule", "--topic", "third", "--in", "2h", "--id", "a", "--conflict", "replace", "x")
	assert.Contains(t, o.stdout, "replaced a: due ")
	assert.Equal(t, "third", f.ok("get", "--id", "a", "-o", "json").object(t)["topic"])
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for name, args := range map[string][]string{
		"nothing":      {},
		"no command":   {"bogus"},
		"no due time":  {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "x"},
		"two":          {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "1s", "--at", "2030-01-02T03:04:05Z", "x"},
		"duration":     {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "5x", "x"},
		"time":         {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--at", "tomorrow", "x"},
		"far":          {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "600w", "x"},
		"no body":      {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "1s"},
		"no topic":     {"schedule", "--config", f.file, "--queue", "orders", "--in", "1s", "x"},
		"bad topic":    {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a.*", "--in", "1s", "x"},
		"bad header":   {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "1s", "--header", "x", "x"},
		"twice":        {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "1s", "--header", "x=1", "--header", "x=2", "x"},
		"reserved":     {"schedule", "--config", f.file, "--queue", "orders", "--topic", "a", "--in", "1s", "--header", "delay-id=1", "x"},
		"no queue":     {"get", "--config", f.file, "--id", "a"},
		"no id":        {"get", "--config", f.file, "--queue", "orders"},
		"bad id":       {"get", "--config", f.file, "--queue", "orders", "--id", "a\n"},
		"output":       {"get", "--config", f.file, "--queue", "orders", "--id", "a", "-o", "yaml"},
		"no file":      {"get", "--config", f.file + "x", "--queue", "orders", "--id", "a"},
		"no letter":    {"dead", "show", "--config", f.file, "--queue", "orders"},
		"id and all":   {"dead", "redrive", "--config", f.file, "--queue", "orders", "--all", "a"},
		"none":         {"dead", "redrive", "--config", f.file, "--queue", "orders"},
		"not sure":     {"dead", "purge", "--config", f.file, "--queue", "orders", "--all"},
		"limit":        {"dead", "list", "--config", f.file, "--queue", "orders", "--limit", "0"},
		"no such file": {"run", "--config", f.file + "x"},
	} {
		o := bridge(t, "", args...)
		assert.Equal(t, exitUsage, o.code, "%s: %+v", name, o)
		assert.Empty(t, o.stdout, name)
		assert.True(t, strings.HasPrefix(o.stderr, "bridge: "), "%s: %s", name, o.stderr)
		if len(args) > 0 && args[0] != "run" && name != "output" {
			code, _ := bridge(t, "", append([]string{args[0]}, append(args[1:], "-o", "json")...)...).errorOf(t)
			assert.Contains(t, []string{"usage", "invalid", "config"}, code, name)
		}
	}
	o := bridge(t, "", "get", "--config", f.file, "--queue", "order", "--id", "a")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "orders, reminders")
}

// TestArgumentsAreUTF8: the parser of the command line would put others in the place of
// such bytes.
func TestArgumentsAreUTF8(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, args := range [][]string{
		{"--id=a\x80b", "--topic", "t", "x"}, {"--id", "a\x80b", "--topic", "t", "x"}, {"--id", "a", "--topic", "t", "\xff"},
	} {
		o := f.run("schedule", append([]string{"--in", "1h"}, args...)...)
		assert.Equal(t, exitUsage, o.code, args)
		assert.Contains(t, o.stderr, "is not UTF-8")
	}
	assert.Equal(t, exitRefused, f.run("get", "--id", "a").code)
}
