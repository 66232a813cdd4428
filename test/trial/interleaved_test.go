package trial_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/test/trial"
)

// patience is for what another process does; it may be a busy machine.
const patience = time.Minute

// outboxWorld is a bridge with an outbox, and what the broker got.
type outboxWorld struct {
	*trial.World
	box *outbox.Outbox

	mu      sync.Mutex
	arrived map[string]int
}

func newInterleaved(t *testing.T, database string) *outboxWorld {
	t.Helper()
	w := newWorld(t, trial.Options{Shards: 2, Copies: true, Database: database})
	box, hangUp, err := w.Outbox(t.Context())
	require.NoError(t, err)
	t.Cleanup(hangUp)
	i := &outboxWorld{World: w, box: box, arrived: map[string]int{}}
	consuming, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.Broker.Consume(consuming, w.Topic, func(r trial.Record) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.arrived[r.ID]++
		})
	}()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
	return i
}

func (i *outboxWorld) has(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.arrived[id] > 0
}

func (i *outboxWorld) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := i.Database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // An error where the test ended it.
	return tx
}

func (i *outboxWorld) schedule(t *testing.T, tx outbox.Tx, id string, body []byte, when delay.When) {
	t.Helper()
	_, err := i.box.Schedule(t.Context(), tx, i.Queue(), delay.Message{ID: id, Topic: i.Topic, Body: body}, when)
	require.NoError(t, err)
}

func (i *outboxWorld) row(t *testing.T, id string) outbox.Row {
	t.Helper()
	row, err := i.box.Get(t.Context(), i.Database.DB, i.Queue(), delay.Ref{ID: id})
	require.NoError(t, err)
	return row
}

// TestOutboxInterleaved has a transaction commit when one with higher ids was
// long published: its message is not skipped. And one cancels a message while
// a relay loads it into a Redis that hangs: the transaction does not wait, and
// the message is never published.
func TestOutboxInterleaved(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"postgres", "mariadb"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			i := newInterleaved(t, database)
			i.lowerCommitsLater(t)
			i.cancelWhileLoading(t)
		})
	}
}

func (i *outboxWorld) lowerCommitsLater(t *testing.T) {
	t.Helper()
	lower, higher := i.begin(t), i.begin(t)
	i.schedule(t, lower, "lower", nil, delay.After(0))
	i.schedule(t, higher, "higher", nil, delay.After(0))
	require.NoError(t, higher.Commit())
	require.Eventually(t, func() bool { return i.has("higher") }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return i.row(t, "higher").State == outbox.Published }, patience, 50*time.Millisecond)
	assert.False(t, i.has("lower"), "published before its commit")
	require.NoError(t, lower.Commit())
	require.Eventually(t, func() bool { return i.has("lower") }, patience, 10*time.Millisecond, "skipped")
	require.Eventually(t, func() bool { return i.row(t, "lower").State == outbox.Published }, patience, 50*time.Millisecond)
}

// cancelWhileLoading tries until Redis hangs while a relay holds the row, from
// before the cancel's transaction until after its commit.
func (i *outboxWorld) cancelWhileLoading(t *testing.T) {
	t.Helper()
	const tries = 40
	for try := range tries {
		if i.cancelLocked(t, try) {
			return
		}
	}
	t.Fatalf("no relay held the row in %d tries", tries)
}

// cancelLocked reports whether the row was locked all the time.
func (i *outboxWorld) cancelLocked(t *testing.T, try int) bool {
	t.Helper()
	const mates, due = 300, 20 * time.Second // To load them takes a moment.
	const unsure = 15 * time.Second          // So shortly before it is due, a relay may take it for published.
	began := time.Now()
	id := func(n int) string { return fmt.Sprintf("locked-%d-%d", try, n) }
	body, tx := make([]byte, 4<<10), i.begin(t)
	for n := range mates {
		i.schedule(t, tx, id(n), body, delay.After(due))
	}
	require.NoError(t, tx.Commit())
	victim := id(mates / 2)
	locked := func() bool {
		is, err := i.Database.Locked(t.Context(), victim)
		require.NoError(t, err)
		return is
	}
	for !locked() {
		if i.row(t, victim).State != outbox.Pending {
			return false // It was loaded between two looks.
		}
	}
	require.NoError(t, i.Redis.Pause())
	hung := true
	resume := func() {
		if hung {
			hung = false
			require.NoError(t, i.Redis.Resume())
		}
	}
	defer resume()
	if !locked() {
		return false
	}
	cancel := i.begin(t)
	require.NoError(t, i.box.Cancel(t.Context(), cancel, i.Queue(), delay.Ref{ID: victim}))
	require.NoError(t, cancel.Commit())
	if !locked() {
		return false
	}
	resume()
	t.Logf("cancelled while a relay held the row, try %d", try)
	require.Eventually(t, func() bool { return i.row(t, victim).State != outbox.Pending }, patience, 50*time.Millisecond)
	if state := i.row(t, victim).State; state == outbox.TooLate && time.Since(began) > due || state == outbox.Unknown && time.Since(began) > due-unsure {
		return false // The machine is so busy that it was, or that nobody could tell.
	}
	assert.Equal(t, outbox.Cancelled, i.row(t, victim).State, "row: %+v", i.row(t, victim))
	require.Eventually(t, func() bool { return i.has(id(0)) && i.has(id(mates-1)) }, patience, 50*time.Millisecond, "its mates")
	require.Eventually(t, func() bool { return i.row(t, id(mates-1)).State == outbox.Published }, patience, 50*time.Millisecond)
	assert.False(t, i.has(victim), "published although its row says that it is cancelled")
	return true
}
