package trial_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/test/trial"
)

// TestRestoredRedis brings Redis back from a backup beside a database that is newer. What docs/runbook.md
// says is done: the queue is paused before the first bridge starts, and resumed after an audit. Nothing
// that has ended since the backup is published, and what was moved is not published at its old time.
func TestRestoredRedis(t *testing.T) {
	t.Parallel()
	r := newRestore(t)
	due := r.soon()
	for _, id := range []string{"published", "cancelled", "moved"} {
		r.row(id, due)
	}
	r.row("waits", delay.After(time.Hour))
	r.states(map[string]string{"published": "stored", "cancelled": "stored", "moved": "stored", "waits": "stored"})
	backup := r.copyRedis()
	r.change(func(tx *sql.Tx) error { return r.box.Cancel(t.Context(), tx, r.w.Queue(), delay.Ref{ID: "cancelled"}) })
	r.change(func(tx *sql.Tx) error {
		return r.box.Reschedule(t.Context(), tx, r.w.Queue(), delay.Ref{ID: "moved"}, delay.After(time.Hour))
	})
	r.states(map[string]string{"published": "published", "cancelled": "cancelled"})
	r.arrives("published")

	require.NoError(t, r.w.Bridge.Stop())
	r.restoreRedis(backup)
	r.command("pause")
	require.NoError(t, r.w.Bridge.Start(t.Context()))
	r.command("outbox audit", "--all")
	r.command("resume")
	r.command("publish-now", "--id", "waits")
	r.arrives("waits")
	r.isEmptyBut(1)
	assert.Equal(t, map[string]int{"published": 1, "waits": 1}, r.got())
}

// TestRestoredTogether brings Redis and the database back from backups of one instant. Nothing knows
// what has happened since, so all that was due between the backup and the loss would be published again:
// it is cancelled by its due time while the queue is paused. What waits beyond is published, once.
func TestRestoredTogether(t *testing.T) {
	t.Parallel()
	r := newRestore(t)
	from := time.Now()
	due := r.soon()
	r.row("row-published", due)
	r.row("row-waits", delay.After(time.Hour))
	for id, when := range map[string]delay.When{"published": due, "cancelled": due, "waits": delay.After(time.Hour)} {
		_, err := r.w.Client.Schedule(t.Context(), delay.Message{ID: id, Topic: r.w.Topic}, when)
		require.NoError(t, err)
	}
	r.states(map[string]string{"row-published": "stored", "row-waits": "stored"})
	require.NoError(t, r.w.Database.Server.Snapshot(t.Context()))
	backup := r.copyRedis()
	require.NoError(t, r.w.Client.Cancel(t.Context(), delay.Ref{ID: "cancelled"}))
	r.arrives("published", "row-published")
	r.states(map[string]string{"row-published": "published"})

	require.NoError(t, r.w.Bridge.Stop())
	require.NoError(t, r.w.Database.Server.Kill())
	lost := time.Now()
	r.restoreRedis(backup)
	require.NoError(t, r.w.Database.Server.Restore())
	require.NoError(t, r.w.Database.Server.Start(t.Context()))
	r.command("pause")
	require.NoError(t, r.w.Bridge.Start(t.Context()))
	r.command("outbox audit", "--all")
	r.command("cancel", "--all", "--due-from", from.UTC().Format(time.RFC3339), "--due-to", lost.Add(time.Second).UTC().Format(time.RFC3339))
	r.command("resume")
	r.row("after", delay.After(0))
	for _, id := range []string{"waits", "row-waits"} {
		r.command("publish-now", "--id", id)
	}
	r.arrives("waits", "row-waits", "after")
	r.states(map[string]string{"row-published": "cancelled", "row-waits": "published", "after": "published"})
	r.isEmptyBut(0)
	assert.Equal(t, map[string]int{"published": 1, "row-published": 1, "waits": 1, "row-waits": 1, "after": 1}, r.got())
}

// restore is a world that is brought back from a backup.
type restore struct {
	t   *testing.T
	w   *trial.World
	box *outbox.Outbox

	mu      sync.Mutex
	arrived map[string]int
}

func newRestore(t *testing.T) *restore {
	t.Helper()
	w := newWorld(t, trial.Options{Redis: persistent(), Database: "postgres", Outbox: "horizon: 2h", Copies: true})
	box, hangUp, err := w.Outbox(t.Context())
	require.NoError(t, err)
	t.Cleanup(hangUp)
	r := &restore{t: t, w: w, box: box, arrived: map[string]int{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Broker.Consume(ctx, w.Topic, r.note) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return r
}

func (r *restore) note(record trial.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived[record.Headers[delay.HeaderID]]++
}

// got is how often each message has arrived.
func (r *restore) got() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.arrived)
}

// soon leaves the time for a backup.
func (r *restore) soon() delay.When { return delay.At(time.Now().Add(40 * time.Second)) }

// change commits something.
func (r *restore) change(do func(tx *sql.Tx) error) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) { // The database may have just come back.
		tx, err := r.w.Database.DB.BeginTx(r.t.Context(), nil)
		require.NoError(c, err)
		defer func() { _ = tx.Rollback() }()
		require.NoError(c, do(tx))
		require.NoError(c, tx.Commit())
	}, time.Minute, 50*time.Millisecond)
}

func (r *restore) row(id string, when delay.When) {
	r.t.Helper()
	r.change(func(tx *sql.Tx) error {
		_, err := r.box.Schedule(r.t.Context(), tx, r.w.Queue(), delay.Message{ID: id, Topic: r.w.Topic}, when)
		return err
	})
}

// states waits until the rows of messages say so.
func (r *restore) states(want map[string]string) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		for id, state := range want {
			row, err := r.box.Get(r.t.Context(), r.w.Database.DB, r.w.Queue(), delay.Ref{ID: id})
			require.NoError(c, err)
			require.Equal(c, state, fmt.Sprint(row.State), id)
		}
	}, 2*time.Minute, 50*time.Millisecond)
}

// arrives waits until the consumer has these.
func (r *restore) arrives(ids ...string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		got := r.got()
		for _, id := range ids {
			if got[id] == 0 {
				return false
			}
		}
		return true
	}, 2*time.Minute, 20*time.Millisecond, "%v", ids)
}

// isEmptyBut waits until only so many messages wait, and nothing is in flight.
func (r *restore) isEmptyBut(waiting int64) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		totals, err := r.w.Totals(r.t.Context())
		require.NoError(c, err)
		require.Equal(c, waiting, totals.Waiting)
		require.Zero(c, totals.InFlight)
	}, 2*time.Minute, 50*time.Millisecond)
}

// command types one, as an operator does.
func (r *restore) command(name string, args ...string) {
	r.t.Helper()
	words := append([]string{"-c", `exec "$0" ` + name + ` --config "$@"`, binary, r.w.Bridge.Config, "--queue", r.w.Queue()}, args...)
	output, err := exec.CommandContext(r.t.Context(), "sh", words...).CombinedOutput()
	r.t.Logf("bridge %s %v: %s", name, args, output)
	require.NoError(r.t, err)
}

// copyRedis makes a backup of the files of a Redis that stands still meanwhile.
func (r *restore) copyRedis() (backup string) {
	r.t.Helper()
	backup = r.t.TempDir()
	require.NoError(r.t, r.w.Redis.Pause())
	err := os.CopyFS(backup, os.DirFS(filepath.Join(r.w.Redis.Dir(), "appendonlydir")))
	require.NoError(r.t, r.w.Redis.Resume())
	require.NoError(r.t, err)
	return backup
}

// restoreRedis has Redis die, and come back with a backup.
func (r *restore) restoreRedis(backup string) {
	r.t.Helper()
	files := filepath.Join(r.w.Redis.Dir(), "appendonlydir")
	require.NoError(r.t, r.w.Redis.Kill())
	require.NoError(r.t, os.RemoveAll(files))
	require.NoError(r.t, os.CopyFS(files, os.DirFS(backup)))
	require.NoError(r.t, r.w.Redis.Start(r.t.Context()))
}
