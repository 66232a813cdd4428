package command

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/jobs"
)

// runJobs runs the queue's jobs as a bridge does, until the test ends.
func (f *fixture) runJobs() {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		jobs.New(job.New(f.queue), "test", slog.New(slog.DiscardHandler)).Run(ctx)
	}()
	f.t.Cleanup(func() { cancel(); <-ended })
}

// listed are the ids that a list shows.
func (f *fixture) listed(args ...string) (ids []string) {
	for _, m := range f.ok("list", append(args, "-o", "json")...).objects(f.t) {
		ids = append(ids, fmt.Sprint(m["id"]))
	}
	return ids
}

func TestJobs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bury("dead-1", "dead-2")
	for i := range 6 {
		f.ok("schedule", "--topic", "t", "--in", "1h", "--id", fmt.Sprint("m-", i), "--tag", fmt.Sprint("tag-", i%3), "x")
	}
	assert.Equal(t, "no jobs in queue orders\n", f.ok("jobs list").stdout)
	waiting := f.ok("cancel", "--all", "--tag", "tag-0", "--no-wait", "-o", "json").object(t)
	assert.Equal(t, "waiting", waiting["state"])
	f.runJobs()

	object := f.ok("cancel", "--all", "--tag", "tag-1", "--dry-run", "-o", "json").object(t)
	assert.Equal(t, []any{"done", 2.0, 0.0}, []any{object["state"], object["matched"], object["done"]})
	assert.Contains(t, f.ok("cancel", "--all", "--tag", "tag-1", "--rate", "100/s").stdout, "2 matched, 2 done")
	require.Eventually(t, func() bool { return len(f.listed("--tag", "tag-0")) == 0 }, time.Minute, 100*time.Millisecond)
	assert.ElementsMatch(t, []string{"m-2", "m-5", "dead-1", "dead-2"}, f.listed())

	before := dueAt(t, f.ok("get", "--id", "m-2", "-o", "json").object(t))
	f.ok("reschedule", "--all", "--tag", "tag-2", "--by", "+30m")
	assert.Equal(t, before.Add(30*time.Minute), dueAt(t, f.ok("get", "--id", "m-2", "-o", "json").object(t)))
	f.ok("reschedule", "--all", "--tag", "tag-2", "--by=-10m")
	assert.Equal(t, before.Add(20*time.Minute), dueAt(t, f.ok("get", "--id", "m-2", "-o", "json").object(t)))
	f.ok("reschedule", "--all", "--topic", "t", "--in", "2d")
	assert.WithinDuration(t, time.Now().Add(48*time.Hour), dueAt(t, f.ok("get", "--id", "m-2", "-o", "json").object(t)), time.Minute)

	assert.Contains(t, f.ok("dead redrive", "--all", "--reason-contains", "too large", "--id-prefix", "dead-1").stdout, "1 matched, 1 done")
	assert.Contains(t, f.ok("dead purge", "--all", "--reason", "large", "--yes").stdout, "0 matched, 0 done", "a part of it")
	assert.Contains(t, f.ok("dead purge", "--all", "--reason", "permanent: too large", "--yes").stdout, "1 matched, 1 done")
	assert.Empty(t, f.listed("--state", "dead"))

	list := f.ok("jobs list", "-o", "json").objects(t)
	require.Len(t, list, 9)
	id := fmt.Sprint(list[0]["job"])
	assert.Contains(t, f.ok("jobs show", id).stdout, "purge done")
	assert.Len(t, strings.Split(strings.TrimSpace(f.ok("jobs list").stdout), "\n"), 10)
	assert.Equal(t, exitRefused, f.run("jobs stop", id).code)
	assert.Equal(t, exitRefused, f.run("jobs show", "none").code)
}

func TestJobsStop(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	id := fmt.Sprint(f.ok("cancel", "--all", "--topic", "t", "--no-wait", "-o", "json").object(t)["job"])
	assert.Contains(t, f.ok("jobs stop", id).stdout, "asked job")
	f.runJobs()
	require.Eventually(t, func() bool { return f.ok("jobs show", id, "-o", "json").object(t)["state"] == "stopped" }, time.Minute, 100*time.Millisecond)
	assert.Equal(t, []string{"a"}, f.listed())
}

func TestJobsUsage(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	for _, args := range [][]string{
		{"cancel"},
		{"cancel", "--all"},
		{"cancel", "--all", "--id", "a"},
		{"cancel", "--id", "a", "--tag", "t"},
		{"cancel", "--all", "--tag", "a b"},
		{"cancel", "--all", "--topic", "t", "--rate", "0"},
		{"reschedule", "--id", "a", "--by", "1h"},
		{"reschedule", "--all", "--topic", "t"},
		{"reschedule", "--all", "--topic", "t", "--by", "1h", "--in", "1h"},
		{"dead redrive", "--all", "--id", "a", "--topic", "t"},
		{"dead purge", "--all", "--topic", "t"},
		{"dead redrive", "a", "--topic", "t"},
	} {
		assert.Equal(t, exitUsage, f.run(args[0], args[1:]...).code, args)
	}
}
