package command

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestStats(t *testing.T) {
	t.Parallel()
	f := setup(t)
	run := func(args ...string) outcome {
		o := bridge(t, "", append([]string{"stats", "--config", f.file}, args...)...)
		require.Equal(t, exitDone, o.code, "%+v", o)
		return o
	}
	assert.Regexp(t, `(?m)^orders +0 +0 +- +0 +0 +0 +- +- +- +- +-$`, run("--over", "0s").stdout, "nobody has used it")
	f.bury("dead")
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "due", "x")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "later", "x")
	f.ok("pause", "--topic", "other")

	text := run("--over", "10ms").stdout
	assert.Regexp(t, `(?m)^orders +2 +1 +\S+ +0 +0 +1 +\d+ B +- +0 +0 +other$`, text)
	assert.Regexp(t, `(?m)^reminders +0 `, text)
	assert.NotContains(t, text, "NEXT DUE")

	object := run("orders", "-o", "json").object(t)
	assert.Equal(t, []any{"orders", 4.0, 2.0, 1.0, 0.0, 1.0}, []any{
		object["name"], object["shards"], object["waiting"], object["due"], object["in_flight"], object["dead"],
	})
	assert.Positive(t, object["oldest_due_age_s"])
	assert.Positive(t, object["bytes"])
	assert.Len(t, object["rates"], 5)
	assert.Equal(t, "other", object["paused"].([]any)[0].(map[string]any)["topic"])

	text = run("orders", "--shards", "-o", "wide", "--over", "0s").stdout
	assert.Contains(t, text, "NEXT DUE")
	assert.Regexp(t, `(?m)^  orders:3 test +\d`, text)
	assert.NotContains(t, text, "no bridge polls", "the test holds them")

	o := bridge(t, "", "stats", "--config", f.file, "oders")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "did you mean orders?")
}

// TestStatsTellsRooms: how full the queue's budget and Redis are, and when they will be, as
// the API has it.
func TestStatsTellsRooms(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stats := func(args ...string) outcome {
		o := bridge(t, "", append([]string{"stats", "--config", f.file, "--over", "0s"}, args...)...)
		require.Equal(t, exitDone, o.code, "%+v", o)
		return o
	}
	f.ok("schedule", "--topic", "t", "--in", "1h", "x")
	assert.NotContains(t, stats("orders", "-o", "json").object(t), "budget")

	at := time.Now().Add(2*time.Hour + time.Minute).Truncate(time.Minute)
	tell := func(rooms inspect.Rooms) { require.NoError(t, inspect.NewAdmin(f.queue).TellRooms(t.Context(), rooms)) }
	tell(inspect.Rooms{Budget: &inspect.Room{Used: 410 << 20, Limit: 512 << 20, FullAt: at}, Redis: &inspect.Room{Used: 1 << 29, Limit: 1 << 30}})
	assert.Regexp(t, `(?m)^orders +1 +0 +- +0 +0 +0 +\d+ B +80% +- +- +-$`, stats("orders").stdout)
	told := "410 MiB of 512 MiB, full at " + at.UTC().Format("2006-01-02T15:04Z")
	assert.Regexp(t, told+` +512 MiB of 1 GiB\n`, stats("orders", "-o", "wide").stdout)
	text := stats().stdout
	assert.Contains(t, text, "\nqueue orders: its budget will be used up: "+told+" (in 2h")
	assert.NotContains(t, text, "maxmemory", "it does not grow")
	object := stats("orders", "-o", "json").object(t)
	assert.Equal(t, map[string]any{"used_bytes": float64(410 << 20), "limit_bytes": float64(512 << 20), "full_at": formatTime(at)}, object["budget"])
	assert.Equal(t, map[string]any{"used_bytes": float64(1 << 29), "limit_bytes": float64(1 << 30)}, object["redis_memory"])

	tell(inspect.Rooms{Redis: &inspect.Room{Used: 1<<30 - 1, Limit: 1 << 30, FullAt: time.Now()}})
	text = stats("orders", "-o", "wide").stdout
	assert.Regexp(t, ` 99% .* - +1024 MiB of 1 GiB, full\n`, text)
	assert.Contains(t, text, "\nredis: its maxmemory is used up: 1024 MiB of 1 GiB, full\n")

	o := bridge(t, "", "top", "--config", f.file, "orders", "--count", "1")
	assert.Regexp(t, `(?m)^TIME .* BYTES +FULL +IN/s `, o.stdout)
	assert.Regexp(t, `Z orders +1 .* B +99% +- `, o.stdout)
}

// TestTop ends after so many looks where there is no terminal, and by a key where there
// is one.
func TestTop(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "first", "x")
	f.settle(f.claim(), message.Verdict{Verb: message.VerbAck})
	f.ok("schedule", "--topic", "t", "--in", "1h", "x")
	o := bridge(t, "", "top", "--config", f.file, "orders", "--count", "2", "--every", "10ms")
	require.Equal(t, exitDone, o.code, "%+v", o)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	require.Len(t, lines, 3)
	assert.Regexp(t, `^TIME +QUEUE +WAITING`, lines[0])
	assert.Regexp(t, `Z orders +1 +0 +- `, lines[2])

	objects := bridge(t, "", "top", "--config", f.file, "-o", "json", "--count", "2", "--every", "10ms").objects(t)
	require.Len(t, objects, 4)
	assert.Nil(t, objects[0]["rates"])
	assert.NotNil(t, objects[2]["rates"])

	script := testenv.Program(t, "script") // It makes a terminal.
	cmd := exec.CommandContext(t.Context(), script, "-qec", binary+" top --config "+f.file, "/dev/null")
	keys, err := cmd.StdinPipe()
	require.NoError(t, err)
	shown, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var text strings.Builder
	for buffer := make([]byte, 1024); !strings.Contains(text.String(), leaveScreen); {
		n, err := shown.Read(buffer)
		_, _ = text.Write(buffer[:n])
		if err != nil {
			break
		}
		if strings.Contains(text.String(), "reminders") {
			_, _ = keys.Write([]byte("q")) // Once it has ended there is nobody to read it.
		}
	}
	require.NoError(t, cmd.Wait(), text.String())
	assert.Contains(t, text.String(), enterScreen)
	assert.Contains(t, text.String(), "q quits")
	assert.Contains(t, text.String(), leaveScreen)
}
