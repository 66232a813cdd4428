package command

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// testPrefix is the prefix in the fixture's configuration.
func testPrefix(t *testing.T, f *fixture) string {
	t.Helper()
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	return string(regexp.MustCompile(`(?m)^prefix: (.*)$`).FindSubmatch(text)[1])
}

func TestGet(t *testing.T) {
	t.Parallel()
	f := setup(t)
	o := f.run("get", "--id", "a", "-o", "json")
	assert.Equal(t, exitRefused, o.code, "nobody has used the queue: %+v", o)
	code, id := o.errorOf(t)
	assert.Equal(t, []string{"not_found", "a"}, []string{code, id})

	f.ok("schedule", "--topic", "order.timeout", "--in", "1h", "--id", "a", "--key", "k", "--header", "h=v", "some text")
	object := f.ok("get", "--id", "a", "--key", "k", "-o", "json").object(t)
	requireFields(t, object)
	object = f.ok("get", "--id", "a", "-o", "json", "--body").object(t)
	requireFields(t, object, "body")
	assert.Equal(t, "c29tZSB0ZXh0", object["body"])
	assert.Equal(t, []any{"a", "k", "order.timeout", "scheduled", 1.0},
		[]any{object["id"], object["key"], object["topic"], object["state"], object["attempt"]})
	text := f.ok("get", "--id", "a", "--body").stdout
	for _, want := range []string{"order.timeout", "scheduled", "h: v", "9 bytes", "some text", "(in "} {
		assert.Contains(t, text, want)
	}
	assert.Equal(t, exitRefused, f.run("get", "--id", "a", "--key", "other").code)
	assert.Equal(t, exitRefused, f.run("get", "--id", "a", "--key", "").code, "an empty key is a key")

	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "empty", "")
	assert.Contains(t, f.ok("get", "--id", "empty", "-o", "json", "--body").stdout, `"body":""`)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "binary", "\x1b[31m")
	assert.NotContains(t, f.ok("get", "--id", "binary", "--body").stdout, "\x1b")
}

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, key := range []string{"k1", "k2"} {
		f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "--key", key, "x")
	}
	for _, verb := range [][]string{{"get"}, {"cancel"}, {"reschedule", "--in", "2h"}} {
		o := f.run(verb[0], append(verb[1:], "--id", "a", "-o", "json")...)
		assert.Equal(t, exitRefused, o.code, o)
		code, id := o.errorOf(t)
		assert.Equal(t, []string{"ambiguous", "a"}, []string{code, id})
		assert.Contains(t, o.stderr, `--key "k1"`)
		assert.Contains(t, o.stderr, `--key "k2"`)
	}
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	assert.Empty(t, f.ok("get", "--id", "a", "-o", "json").object(t)["key"], "the one without a key is meant")
	f.ok("cancel", "--id", "a")
	f.ok("cancel", "--id", "a", "--key", "k1")
	assert.Equal(t, "k2", f.ok("cancel", "--id", "a", "-o", "json").object(t)["key"])
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	object := f.ok("cancel", "--id", "a", "-o", "json").object(t)
	requireFields(t, object)
	assert.Equal(t, "cancelled", object["state"])
	o := f.run("cancel", "--id", "a", "-o", "json")
	assert.Equal(t, exitRefused, o.code)
	code, _ := o.errorOf(t)
	assert.Equal(t, "not_found", code)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	assert.Equal(t, "cancelled a\n", f.ok("cancel", "--id", "a").stdout)
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "--key", "k", "x")
	object := f.ok("reschedule", "--id", "a", "--in", "2w", "-o", "json").object(t)
	requireFields(t, object)
	assert.Equal(t, "scheduled", object["state"])
	assert.WithinDuration(t, time.Now().Add(14*24*time.Hour), dueAt(t, object), 10*time.Second)
	assert.Contains(t, f.ok("reschedule", "--id", "a", "--at", "2030-01-02T03:04:05Z").stdout, "rescheduled a: due 2030-01-02T03:04:05.000Z")
	object = f.ok("publish-now", "--id", "a", "-o", "json").object(t)
	assert.WithinDuration(t, time.Now(), dueAt(t, object), 10*time.Second)
	assert.Equal(t, exitRefused, f.run("publish-now", "--id", "b").code)
	assert.Equal(t, exitRefused, f.run("reschedule", "--id", "b", "--in", "1h").code)
	assert.Equal(t, exitUsage, f.run("reschedule", "--id", "a").code)
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "a", "x")
	claims := f.claim()
	assert.Equal(t, "in_flight", f.ok("get", "--id", "a", "-o", "json").object(t)["state"])
	for _, verb := range [][]string{{"cancel"}, {"reschedule", "--in", "1h"}, {"schedule", "--topic", "t", "--in", "1h", "--conflict", "replace", "x"}} {
		o := f.run(verb[0], append(verb[1:], "--id", "a", "-o", "json")...)
		assert.Equal(t, exitRefused, o.code, o)
		code, id := o.errorOf(t)
		assert.Equal(t, []string{"too_late", "a"}, []string{code, id})
	}

	// A copy may be out: what is asked is done, and the doubt is said.
	f.settle(claims, message.Verdict{Attempts: message.Attempts{Begun: 1, MaybeOut: 1}, Published: true})
	o := f.ok("reschedule", "--id", "a", "--in", "1h", "-o", "json")
	assert.Equal(t, "scheduled", o.object(t)["state"])
	assert.Contains(t, o.stderr, "may have been published")
	assert.Equal(t, "maybe_published", warningOf(t, o))
	assert.Contains(t, f.ok("get", "--id", "a", "-o", "json").stdout, `"attempt":2`)
	o = f.ok("cancel", "--id", "a")
	assert.Contains(t, o.stderr, "bridge: warning: ")
	assert.Equal(t, exitRefused, f.run("get", "--id", "a").code)
}

func warningOf(t *testing.T, o outcome) string {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace([]byte(o.stderr)), []byte("\n"))
	var notice struct{ Warning struct{ Code string } }
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &notice), o.stderr)
	return notice.Warning.Code
}
