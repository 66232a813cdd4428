package command

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// trial is a run of a command, and what the audit has of it.
type trial struct {
	// command is its name, args what follows; QUEUE, FILE, LINES and JOB stand for the queue's
	// flags, the configuration, a file of messages, and the last job.
	command, args string
	exit          int
	want          inspect.Change
}

// changingTrials change a queue, one after another: each leaves an entry, or none where its
// arguments are wrong.
var changingTrials = []trial{
	{"schedule", "QUEUE --topic t --in 1h --id a --key k x", exitDone, inspect.Change{Action: "schedule", What: "a", Key: "k", Topic: "t", Answer: "created"}},
	{"schedule", "QUEUE --topic t --in 1h --id a --key k x", exitRefused, inspect.Change{Action: "schedule", What: "a", Key: "k", Topic: "t", Answer: "duplicate"}},
	{"schedule", "QUEUE --batch LINES", exitUsage, inspect.Change{Action: "schedule", Answer: "created 2, invalid 1"}},
	{"schedule", "QUEUE --topic t --in -1h --id b x", exitUsage, inspect.Change{}},
	{"reschedule", "QUEUE --id a --in 2h", exitDone, inspect.Change{Action: "reschedule", What: "a", Key: "k", Answer: "rescheduled"}},
	{"reschedule", "QUEUE --all --topic t --by 1h --no-wait", exitDone, inspect.Change{Action: "job reschedule", What: `{"topic":"t"}`, Answer: "job JOB"}},
	{"reschedule", "QUEUE --all --by 1h --no-wait", exitUsage, inspect.Change{}},
	{"publish-now", "QUEUE --id a", exitDone, inspect.Change{Action: "publish-now", What: "a", Key: "k", Answer: "rescheduled"}},
	{"publish-now", "QUEUE --id dead-1", exitDone, inspect.Change{Action: "publish-now", What: "dead-1", Answer: "rescheduled"}},
	{"cancel", "QUEUE --id a", exitDone, inspect.Change{Action: "cancel", What: "a", Key: "k", Answer: "cancelled"}},
	{"cancel", "QUEUE --id a", exitRefused, inspect.Change{Action: "cancel", What: "a", Answer: "not_found"}},
	{"cancel", "QUEUE --all --tag x --dry-run --no-wait", exitDone, inspect.Change{Action: "job cancel, count only", What: `{"tag":"x"}`, Answer: "job JOB"}},
	{"jobs stop", "QUEUE JOB", exitDone, inspect.Change{Action: "stop job", What: "JOB", Answer: "done"}},
	{"pause", "QUEUE --topic t", exitDone, inspect.Change{Action: "pause", Topic: "t", Answer: "done"}},
	{"resume", "QUEUE --topic t", exitDone, inspect.Change{Action: "resume", Topic: "t", Answer: "done"}},
	{"recurring set", "QUEUE n --cron @daily --topic t", exitDone, inspect.Change{Action: "set recurring", What: "n", Topic: "t", Answer: "done"}},
	{"recurring set", "QUEUE n --cron never --topic t", exitUsage, inspect.Change{}},
	{"recurring pause", "QUEUE n", exitDone, inspect.Change{Action: "pause recurring", What: "n", Topic: "t", Answer: "done"}},
	{"recurring resume", "QUEUE n", exitDone, inspect.Change{Action: "resume recurring", What: "n", Topic: "t", Answer: "done"}},
	{"recurring delete", "QUEUE n", exitDone, inspect.Change{Action: "delete recurring", What: "n", Answer: "done"}},
	{"dead redrive", "QUEUE dead-2", exitDone, inspect.Change{Action: "redrive", What: "dead-2", Answer: "done"}},
	{"dead redrive", "QUEUE --all --reason large --no-wait", exitDone, inspect.Change{Action: "job redrive", What: `{"state":"dead","reason":"large"}`, Answer: "job JOB"}},
	{"dead purge", "QUEUE dead-3", exitDone, inspect.Change{Action: "purge", What: "dead-3", Answer: "done"}},
	{"dead purge", "QUEUE --all", exitUsage, inspect.Change{}},
	{"dead purge", "QUEUE --all --yes", exitDone, inspect.Change{Action: "purge", What: `{"state":"dead"}`, Answer: "done 1"}},
	{"shards set", "QUEUE 8", exitDone, inspect.Change{Action: "shards set", What: "8", Answer: "done"}},
	{"verify", "-c FILE orders --repair", exitDone, inspect.Change{Action: "verify --repair", Answer: "found 0, mended 0"}},
}

// lookingTrials change nothing, and leave no entry.
var lookingTrials = []trial{
	{command: "get", args: "QUEUE --id b-1"},
	{command: "list", args: "QUEUE"},
	{command: "jobs list", args: "QUEUE"},
	{command: "jobs show", args: "QUEUE JOB"},
	{command: "recurring list", args: "QUEUE"},
	{command: "recurring show", args: "QUEUE n", exit: exitRefused},
	{command: "dead list", args: "QUEUE"},
	{command: "dead show", args: "QUEUE dead-9", exit: exitRefused},
	{command: "shards list", args: "QUEUE"},
	{command: "forecast", args: "QUEUE"},
	{command: "stats", args: "-c FILE orders --over 0s"},
	{command: "usage", args: "-c FILE"},
	{command: "top", args: "-c FILE orders --count 1"},
	{command: "verify", args: "-c FILE orders"},
	{command: "config validate", args: "-c FILE"},
}

// otherCommands are those that are about no queue, run the bridge, ask one by its API, have an outbox (see TestOutboxAudit), or import
// from another system (see TestImportAsynq).
var otherCommands = []string{
	"dev", "run", "check", "inlets", "mcp", "queues list", "queues show", "queues apply", "queues delete", "import asynq", "import bullmq", "ready", "size", "version", "completion", "man", "__complete", "config print", "config schema", "config acl",
	"outbox list", "outbox show", "outbox audit", "outbox adopt", "outbox redrive",
	"outbox migrate up", "outbox migrate down", "outbox migrate status", "outbox migrate print",
}

// TestAudit: each command that changes a queue leaves an entry, with who has run it, and none
// that only looks.
func TestAudit(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 1, "nats://127.0.0.1:1", "")
	lines := filepath.Join(t.TempDir(), "lines")
	text := `{"id": "b-1", "topic": "t", "in": "1h", "body": "x"}` + "\n{}\n" + `{"id": "b-2", "topic": "t", "in": "1h", "body": "x"}`
	require.NoError(t, os.WriteFile(lines, []byte(text), 0o600))
	dead := []string{"dead-1", "dead-2", "dead-3", "dead-4"}
	f.bury(dead...)
	who, host := operator()
	job, entries := "", len(dead)
	for _, c := range slices.Concat(changingTrials, lookingTrials) {
		words := strings.NewReplacer("QUEUE", "--config "+f.file+" --queue orders", "FILE", f.file, "LINES", lines, "JOB", job)
		o := bridge(t, "", strings.Fields(c.command+" "+words.Replace(c.args))...)
		require.Equal(t, c.exit, o.code, "%+v: %+v", c, o)
		log, err := inspect.NewAdmin(f.queue).AuditLog(t.Context(), "", inspect.MaxAudit)
		require.NoError(t, err)
		if c.want == (inspect.Change{}) {
			require.Len(t, log, entries, "%+v", c)
			continue
		}
		entries++
		require.Len(t, log, entries, "%+v", c)
		got := log[0]
		if id, isJob := strings.CutPrefix(got.Answer, "job "); isJob {
			job = id
		}
		want := c.want
		want.Cursor, want.At, want.Who, want.From, want.Via = got.Cursor, got.At, who, host, inspect.ViaCommand
		want.What, want.Answer = strings.Replace(want.What, "JOB", job, 1), strings.Replace(want.Answer, "JOB", job, 1)
		require.Equal(t, want, got, "%+v", c)
	}
}

// TestAuditKnowsAllCommands: who adds a command says whether it changes a queue.
func TestAuditKnowsAllCommands(t *testing.T) {
	t.Parallel()
	known := slices.Clone(otherCommands)
	for _, c := range slices.Concat(changingTrials, lookingTrials) {
		known = append(known, c.command)
	}
	slices.Sort(known)
	parser, err := newParser(&program{stdout: io.Discard, stderr: io.Discard}, ownName)
	require.NoError(t, err)
	var all []string
	for _, command := range parser.Model.Leaves(false) {
		all = append(all, command.Path())
	}
	assert.ElementsMatch(t, all, slices.Compact(known))
}

// TestNotAudited: a change that cannot be written down stays, and that is said.
func TestNotAudited(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	key := f.queue.Keys().Audit()
	require.NoError(t, f.rdb.Del(t.Context(), key).Err())
	require.NoError(t, f.rdb.Set(t.Context(), key, "another's", 0).Err())
	o := f.ok("cancel", "--id", "a", "-o", "json")
	assert.Equal(t, "cancelled", o.object(t)["state"])
	assert.Equal(t, "not_audited", warningOf(t, o))
	assert.Contains(t, o.stderr, "cancel is not in the audit of queue orders: write audit: WRONGTYPE")
	assert.Equal(t, exitRefused, f.run("get", "--id", "a").code)
}
