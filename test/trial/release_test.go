package trial_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// beforeFirst stands for the release before the first one.
const beforeFirst = "c3e464bacd2a2f312148a3259755de98db86f110"

// command runs a program of this repository's and returns what it prints.
func command(t *testing.T, stdin string, words ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Stdin = "../..", strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// earlierRelease builds the bridge of the release before this commit: the newest tag that it
// comes from. That needs the history.
func earlierRelease(t *testing.T) (binary string) {
	t.Helper()
	release, err := command(t, "", "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if err != nil {
		release = beforeFirst
	}
	out, err := command(t, "", "git", "cat-file", "-e", release+"^{commit}")
	const need = "this needs a clone with the whole history and its tags, as of `git fetch --unshallow --tags`"
	if err != nil && os.Getenv("GITHUB_ACTIONS") == "" { // There it must run; a source archive has no history.
		t.Skip(need, ": ", out)
	}
	require.NoError(t, err, "%s: %s", need, out)
	binary, err = trial.BuildCommit(t.Context(), release)
	require.NoError(t, err)
	t.Log("the earlier release is ", release)
	return binary
}

// twoReleases are the earlier release's bridge and today's, on one Redis.
type twoReleases struct {
	*trial.World
	t              *testing.T
	binary         string // of the earlier release
	earlier, today *trial.Bridge
}

// commandLine runs a command of the earlier release.
func (r *twoReleases) commandLine(stdin, verb string, args ...string) {
	r.t.Helper()
	words := append([]string{r.binary, verb, "--config", r.earlier.Config, "--queue", r.Queue()}, args...)
	out, err := command(r.t, stdin, words...)
	require.NoError(r.t, err, "%v: %s", words, out)
}

// exchange has both releases' producers schedule, cancel and reschedule, also what the other
// has scheduled, and waits until all that must arrive has.
func (r *twoReleases) exchange(ids string) {
	r.t.Helper()
	require.NoError(r.t, load(r.World, ids+"ours-", 300, time.Second).Run(r.t.Context(), r.Ledger))

	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	add := func(id string, due time.Time) {
		body := "body of " + id
		require.NoError(r.t, encoder.Encode(map[string]string{
			"id": id, "topic": r.Topic, "body": body, "at": due.UTC().Format(time.RFC3339Nano),
		}))
	}
	soon, far := time.Now().Add(3*time.Second).Truncate(time.Millisecond), time.Now().Add(time.Hour).Truncate(time.Millisecond)
	theirs := map[string]time.Time{ids + "theirs-moved": far, ids + "theirs-cancelled": far}
	for i := range 100 {
		theirs[fmt.Sprintf("%stheirs-%03d", ids, i)] = soon
	}
	for id, due := range theirs {
		add(id, due)
	}
	r.commandLine(lines.String(), "schedule", "--batch", "-")
	for id, due := range theirs {
		m := delay.Message{ID: id, Topic: r.Topic, Body: []byte("body of " + id)}
		r.Ledger.Scheduled(m, delay.Result{Ref: delay.Ref{ID: id}, DueAt: due})
	}
	require.NoError(r.t, trial.Cancel(r.t.Context(), r.Client, delay.Ref{ID: ids + "theirs-cancelled"}, r.Ledger, nil))
	moved := delay.Ref{ID: ids + "theirs-moved"}
	require.NoError(r.t, trial.Reschedule(r.t.Context(), r.Client, moved, time.Now().Add(time.Second), r.Ledger, nil))

	crossed := delay.Message{ID: ids + "ours-cancelled", Topic: r.Topic}
	result, err := r.Client.Schedule(r.t.Context(), crossed, delay.After(time.Hour))
	require.NoError(r.t, err)
	r.Ledger.Scheduled(crossed, result)
	r.commandLine("", "cancel", "--id", crossed.ID)
	r.Ledger.Cancelled(crossed.ID)
	r.Ledger.Await(time.Minute, time.Second)
	require.Zero(r.t, r.Ledger.Missing(), "%s\n%s", r.earlier.Log(), r.today.Log())
}

// published is how many messages a bridge has published since its start.
func (r *twoReleases) published(b *trial.Bridge) float64 {
	r.t.Helper()
	n, err := b.Metric(r.t.Context(), fmt.Sprintf("delaybridge_published_total{queue=%q}", r.Queue()))
	require.NoError(r.t, err)
	return n
}

// TestEarlierRelease upgrades from the release before, rolls back and upgrades again, on one
// Redis: each release publishes what the other's producers have scheduled, alone and beside
// the other. It checks I1, I2 and I3.
func TestEarlierRelease(t *testing.T) {
	t.Parallel()
	r := &twoReleases{t: t, binary: earlierRelease(t)}
	r.World = newWorld(t, trial.Options{Binary: r.binary, Shards: 32, Redis: persistent()}) // Each bridge gets some of so many shards.
	r.earlier = r.Bridge
	var err error
	r.today, err = r.BridgeOf(t.Context(), binary)
	require.NoError(t, err)
	consume(t, r.World)

	r.exchange("alone-")
	require.NoError(t, r.today.Start(t.Context()))
	before := r.published(r.earlier)
	for n := 0; r.published(r.today) == 0 || r.published(r.earlier) == before; n++ {
		require.Less(t, n, 10, "one of them publishes nothing")
		r.exchange(fmt.Sprintf("beside-%d-", n))
	}
	require.NoError(t, r.earlier.Stop())
	r.exchange("upgraded-")
	require.NoError(t, r.earlier.Start(t.Context()))
	require.NoError(t, r.today.Stop())
	r.exchange("back-")
	require.NoError(t, r.today.Start(t.Context()))
	require.NoError(t, r.earlier.Stop())
	r.exchange("again-")
	report, _ := check(t, r.World)
	assert.Zero(t, report.Duplicates)
}
