package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// reconciling is a real Redis with a ledger, and a reconciler.
type reconciling struct {
	*settling
	config ReconcilerConfig
}

func newReconciling(t *testing.T, d *Database) *reconciling {
	t.Helper()
	s := &reconciling{settling: newSettling(t, d)}
	s.config = ReconcilerConfig{
		Databases: []*Database{d}, Queues: []ReconciledQueue{{Queue: s.scene.config.Queues[0], Redis: s.store.Rows()}},
		Flush: s.settler.Flush, Logger: slog.New(slog.NewTextHandler(s.logs, nil)),
		second: 300 * time.Millisecond, grace: time.Millisecond,
	}
	return s
}

func (s *reconciling) reconciler() *Reconciler {
	s.t.Helper()
	r, err := NewReconciler(s.config)
	require.NoError(s.t, err)
	return r
}

func (s *reconciling) reconcile(dry bool) Counts {
	s.t.Helper()
	counts, err := s.reconciler().Reconcile(bounded(s.t), s.orders, dry, nil)
	require.NoError(s.t, err)
	return counts
}

// wipe is what FLUSHALL does to the queue, and a bridge after it.
func (s *reconciling) wipe() {
	s.t.Helper()
	storetest.Remove(s.t.Context(), s.rdb, s.store.Name(), 2)
	_, err := s.store.Layouts().Ensure(s.t.Context(), storetest.Layout(2))
	require.NoError(s.t, err)
}

func (s *reconciling) life() string {
	s.t.Helper()
	layout, err := s.store.LoadLayout(s.t.Context())
	require.NoError(s.t, err)
	return layout.Life()
}

func TestReconcilePutsBack(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		future := s.stored("future", far, func(i *insert) { i.headers = `{"a":"b"}` })
		s.stored("overdue", past)
		s.insertMany(2500, far, true)
		pending := s.insert(insert{id: "pending", dueMs: s.due(far)})
		s.insert(insert{id: "other", queue: "others", state: stateStored, dueMs: s.due(far)})
		before, _ := s.read(future)
		s.wipe()

		require.Equal(t, Counts{Looked: 2502, PutBack: 2502}, s.reconcile(true))
		require.Nil(t, s.find("k", "future"), "a dry run changes nothing")

		var told []Counts
		counts, err := s.reconciler().Reconcile(bounded(t), "", false, func(c Counts) { told = append(told, c) })
		require.NoError(t, err)
		require.Equal(t, Counts{Looked: 2502, PutBack: 2502}, counts)
		require.Equal(t, counts, told[len(told)-1])
		require.Greater(t, len(told), 3)

		found := s.find("k", "future")
		require.NotNil(t, found)
		require.Equal(t, before.token, found.Token)
		require.Equal(t, before.dueMs, found.DueAt.UnixMilli())
		require.Equal(t, map[string]string{"a": "b"}, found.Headers)
		require.Equal(t, "b", string(found.Body))
		require.False(t, found.MaybePublished)
		require.True(t, s.find("k", "overdue").MaybePublished, "a copy may be out")
		require.Nil(t, s.find("", "pending"), "the relay brings it")
		require.Equal(t, "pending", s.state(pending))

		require.Equal(t, Counts{Looked: 2502, There: 2502}, s.reconcile(false), "again, nothing is missing")
		s.sound()
	})
}

func TestReconcileLargeRows(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		for i := range 5 {
			s.stored(fmt.Sprint("large", i), far, func(i *insert) { i.body = string(make([]byte, 200<<10)) })
		}
		s.wipe()
		require.Equal(t, Counts{Looked: 5, PutBack: 5}, s.reconcile(false))
		require.Len(t, s.find("k", "large3").Body, 200<<10)
	})
}

func TestReconcileLeavesWhatHasEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		published, cancelled, moved := s.stored("published", past), s.stored("cancelled", far), s.stored("moved", far)
		told := s.stored("told", far)
		s.publish()
		for shard := range 2 { // Another bridge has published it, without a ledger.
			require.NoError(t, s.rdb.Del(t.Context(), storetest.Key(s.orders, shard, "settled")).Err())
		}
		// A relay has cancelled one and moved one; the rows do not know it yet.
		r, _ := s.read(cancelled)
		require.Equal(t, store.Done, s.store.Rows().CancelRow(t.Context(), store.Operation{ID: "cancelled", Key: "k", Token: "~cancels-it-----", Target: r.token}).Code)
		r, _ = s.read(moved)
		require.Equal(t, store.Done, s.store.Rows().RescheduleRow(t.Context(), store.Operation{ID: "moved", Key: "k", Token: "~moves-it-------", Target: r.token}, time.Now().Add(far)).Code)
		// Somebody has cancelled one, and the ledger tells.
		require.NoError(t, s.store.Producer().Cancel(t.Context(), "told", "k", store.Durability{}).Err)

		require.Equal(t, Counts{Looked: 4, There: 1, Settled: 1, Skipped: 2}, s.reconcile(true))
		require.Equal(t, "stored", s.state(published))
		require.Equal(t, Counts{Looked: 3, There: 1, Settled: 1, Skipped: 1}, s.reconcile(false))
		require.Equal(t, "published", s.state(published))
		require.Equal(t, "stored", s.state(cancelled), "its relay says what the operation was told")
		require.Equal(t, "cancelled", s.state(told), "the ledger was read before")
		require.Nil(t, s.find("k", "published"))
		require.Nil(t, s.find("k", "cancelled"))
		require.Nil(t, s.find("k", "told"))
	})
}

func TestReconcileSkipsWhatHasOperations(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		s.stored("operated", far)
		s.stored("free", far)
		s.insert(insert{id: "operated", key: "k", verb: verbCancel})
		s.wipe()
		require.Equal(t, Counts{Looked: 2, PutBack: 1, Skipped: 1}, s.reconcile(false))
		require.Nil(t, s.find("k", "operated"))
		require.NotNil(t, s.find("k", "free"))

		p := &pass{Reconciler: s.reconciler(), db: d, queue: &s.config.Queues[0], report: &report{}, again: &again{list: map[identity]bool{}}}
		require.NoError(t, p.run(bounded(t)))
		list, over := p.again.take()
		require.Equal(t, []identity{{s.orders, "k", "operated"}}, list, "it is looked at again")
		require.False(t, over)
	})
}

func TestReconcileRemembersCopies(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		for id, how := range map[string]state{"copy": stateUnknown, "none": stateStored} {
			head := s.stored(id, far)
			op := s.insert(insert{id: id, key: "k", verb: verbReschedule, state: how, dueMs: s.due(far)})
			_, err := d.query("").add("UPDATE {t} SET revision = ? WHERE id = ?", op, head).exec(t.Context(), d.db)
			require.NoError(t, err)
		}
		s.wipe()
		s.reconcile(false)
		require.True(t, s.find("k", "copy").MaybePublished, "it was published once, perhaps, and then moved")
		require.False(t, s.find("k", "none").MaybePublished)
	})
}

func TestReconcileBlocked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		number := s.stored("taken", far)
		s.wipe()
		request := store.Request{Message: &message.Message{ID: "taken", Key: "k", Topic: "t"}, When: store.When{Ms: s.due(far)}}
		answer := s.store.Producer().Schedule(t.Context(), []store.Request{request}, false, store.Durability{})[0]
		require.NoError(t, answer.Err)
		require.Equal(t, Counts{Looked: 1, Blocked: 1}, s.reconcile(false))
		require.Equal(t, "stored", s.state(number))
	})
}

func TestReconcileRemovesWhatHasEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		ended := map[string]state{"published": statePublished, "cancelled": stateCancelled, "unknown": stateUnknown, "flies": statePublished}
		for id, how := range ended {
			due := far
			if id == "flies" {
				due = past
			}
			number := s.stored(id, due)
			_, err := d.query("").add("UPDATE {t} SET status = ? WHERE id = ?", int64(how), number).exec(t.Context(), d.db)
			require.NoError(t, err)
		}
		s.take() // One is in flight.
		// The same identity again: the row that has ended had another token.
		s.insert(insert{id: "again", key: "k", state: statePublished, dueMs: s.due(far)})
		s.stored("again", far)
		s.stored("lives", far)
		unlisted := s.stored("unlisted", far)
		_, err := d.query("").add("DELETE FROM {t} WHERE id = ?", unlisted).exec(t.Context(), d.db)
		require.NoError(t, err)

		// The message may be another one by the time that it is removed.
		n, err := s.store.Rows().Remove(t.Context(), []store.SettledRow{{Token: "~another-token--", ID: "lives", Key: "k", What: store.FatePublished}})
		require.NoError(t, err)
		require.Zero(t, n)

		require.Equal(t, Counts{Looked: 2, There: 2, Removed: 3}, s.reconcile(true))
		require.NotNil(t, s.find("k", "published"), "a dry run changes nothing")
		require.Equal(t, Counts{Looked: 2, There: 2, Removed: 3}, s.reconcile(false))
		for _, id := range []string{"published", "cancelled", "unknown"} {
			require.Nil(t, s.find("k", id), id)
		}
		for _, id := range []string{"flies", "again", "lives", "unlisted"} {
			require.NotNil(t, s.find("k", id), id)
		}
		s.sound()
	})
}

// spying is a queue whose Put does something before.
type spying struct {
	*store.Rows
	before func(ctx context.Context, rows []store.Row)
}

func (s spying) Put(ctx context.Context, rows []store.Row) []store.Answer {
	s.before(ctx, rows)
	return s.Rows.Put(ctx, rows)
}

// What was settled or moved between the read of a row and the put is taken back.
func TestReconcileRechecks(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		s.stored("kept", far)
		settled, moved := s.stored("settled", far), s.stored("moved", far)
		s.wipe()
		var once sync.Once
		s.config.Queues[0].Redis = spying{s.store.Rows(), func(ctx context.Context, _ []store.Row) {
			once.Do(func() {
				_, err := d.query("").add("UPDATE {t} SET status = 3 WHERE id = ?", settled).exec(ctx, d.db)
				require.NoError(t, err)
				_, err = d.query("").add("UPDATE {t} SET token = ? WHERE id = ?", "~another-token--", moved).exec(ctx, d.db)
				require.NoError(t, err)
			})
		}}
		counts := s.reconcile(false)
		require.EqualValues(t, 2, counts.PutBack)
		require.Nil(t, s.find("k", "settled"), "nothing cancelled comes back")
		require.Equal(t, "~another-token--", s.find("k", "moved").Token)
		require.NotNil(t, s.find("k", "kept"))
	})
}

// A row is put soon after it was read, or read again.
func TestReconcileReadsOldRowsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		number := s.stored("one", far)
		s.wipe()
		rows, err := d.storedAfter(t.Context(), s.orders, keyset{})
		require.NoError(t, err)
		require.Len(t, rows, 1)
		_, err = d.query("").add("UPDATE {t} SET status = 2 WHERE id = ?", number).exec(t.Context(), d.db)
		require.NoError(t, err)
		s.config.Queues[0].Redis = spying{s.store.Rows(), func(context.Context, []store.Row) { t.Error("put what was read long ago") }}
		p := &pass{Reconciler: s.reconciler(), db: d, queue: &s.config.Queues[0], report: &report{}}
		require.NoError(t, p.work(bounded(t), rows, time.Now().Add(-putWithin)))
		require.Nil(t, s.find("k", "one"))
		require.Zero(t, p.report.counts.PutBack)
	})
}

func TestReconcileWaitsForRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReconciling(t, d)
		s.stored("one", far)
		storetest.Remove(t.Context(), s.rdb, s.orders, 2) // No layout: nothing can be put.
		done := make(chan error, 1)
		p := &pass{Reconciler: s.reconciler(), db: d, queue: &s.config.Queues[0], report: &report{}}
		go func() { done <- p.run(t.Context()) }()
		s.eventually("it has said so", func() bool { return s.logs.count("outbox_reconcile_away") == 1 })
		_, err := s.store.Layouts().Ensure(t.Context(), storetest.Layout(2))
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.NotNil(t, s.find("k", "one"))
		require.Equal(t, 1, s.logs.count("outbox_reconcile_away"))
	})
}
