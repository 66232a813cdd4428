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

// auditing is a real Redis with a ledger, and an auditor.
type auditing struct {
	*settling
	config AuditorConfig
}

func newAuditing(t *testing.T, d *Database) *auditing {
	t.Helper()
	s := &auditing{settling: newSettling(t, d)}
	s.config = AuditorConfig{
		Databases: []*Database{d}, Queues: []AuditedQueue{{Queue: s.scene.config.Queues[0]}},
		Flush: s.settler.Flush, Logger: slog.New(slog.NewTextHandler(s.logs, nil)),
		second: time.Millisecond, grace: time.Millisecond,
	}
	return s
}

func (s *auditing) auditor() *Auditor {
	s.t.Helper()
	a, err := NewAuditor(s.config)
	require.NoError(s.t, err)
	return a
}

func (s *auditing) audit(all, dry bool) Counts {
	s.t.Helper()
	counts, err := s.auditor().Audit(bounded(s.t), s.orders, all, dry, nil)
	require.NoError(s.t, err)
	return counts
}

// run runs an auditor until the returned function is called.
func (s *auditing) run(a *Auditor) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(s.t, <-done)
	}
}

// remove deletes a message from Redis, as a failover does that takes its write back.
func (s *auditing) remove(id string) {
	s.t.Helper()
	for shard := range 2 {
		for _, name := range []string{"due", "msg", "attempts"} {
			key := storetest.Key(s.store.Name(), shard, name)
			if name == "due" {
				require.NoError(s.t, s.rdb.ZRem(s.t.Context(), key, message.Member(id, "k")).Err())
			} else {
				require.NoError(s.t, s.rdb.HDel(s.t.Context(), key, message.Member(id, "k")).Err())
			}
		}
	}
}

func TestAuditPutsBack(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		future := s.stored("future", far, func(i *insert) { i.headers = `{"a":"b"}` })
		s.stored("overdue", -time.Minute)
		s.insertMany(2500, far, true)
		pending := s.insert(insert{id: "pending", dueMs: s.due(far)})
		s.insert(insert{id: "other", queue: "others", state: stateStored, dueMs: s.due(far)})
		before, _ := s.read(future)
		s.lose()

		require.Equal(t, Counts{Looked: 2502, PutBack: 2502}, s.audit(true, true))
		require.Nil(t, s.find("k", "future"), "a dry run changes nothing")
		require.Equal(t, Counts{Looked: 1, PutBack: 1}, s.audit(false, false))
		require.True(t, s.find("k", "overdue").MaybePublished, "a copy may be out")

		var told []Counts
		counts, err := s.auditor().Audit(bounded(t), "", true, false, func(c Counts) { told = append(told, c) })
		require.NoError(t, err)
		require.Equal(t, Counts{Looked: 2502, PutBack: 2501, There: 1}, counts)
		require.Equal(t, counts, told[len(told)-1])
		require.Greater(t, len(told), 3)

		found := s.find("k", "future")
		require.NotNil(t, found)
		require.Equal(t, before.token, found.Token)
		require.Equal(t, before.dueMs, found.DueAt.UnixMilli())
		require.Equal(t, map[string]string{"a": "b"}, found.Headers)
		require.Equal(t, "b", string(found.Body))
		require.False(t, found.MaybePublished)
		require.Nil(t, s.find("", "pending"), "the relay brings it")
		require.Equal(t, "pending", s.state(pending))

		require.Equal(t, Counts{Looked: 2502, There: 2502}, s.audit(true, false), "again, nothing is missing")
		s.sound()
	})
}

func TestAuditLargeRows(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		for i := range 5 {
			s.stored(fmt.Sprint("large", i), far, func(i *insert) { i.body = string(make([]byte, 200<<10)) })
		}
		s.lose()
		require.Equal(t, Counts{Looked: 5, PutBack: 5}, s.audit(true, false))
		require.Len(t, s.find("k", "large3").Body, 200<<10)
	})
}

// TestAuditObeysRedis: what Redis remembers to have ended stays so, and its row
// learns of it (I11).
func TestAuditObeysRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		published, cancelled, moved := s.stored("published", past), s.stored("cancelled", far), s.stored("moved", far)
		told := s.stored("told", far)
		s.publish()
		for shard := range 2 { // Another bridge has published it, without a ledger.
			require.NoError(t, s.rdb.Del(t.Context(), storetest.Key(s.orders, shard, "settled")).Err())
		}
		// A relay has cancelled one and moved one; the rows do not know it yet.
		r, _ := s.read(cancelled)
		cancelIt := s.insert(insert{id: "cancelled", key: "k", verb: verbCancel})
		require.Equal(t, store.Done, s.store.Rows().CancelRow(t.Context(), store.Operation{ID: "cancelled", Key: "k", Token: "~cancels-it-----", Target: r.token}).Code)
		r, _ = s.read(moved)
		require.Equal(t, store.Done, s.store.Rows().RescheduleRow(t.Context(), store.Operation{ID: "moved", Key: "k", Token: "~moves-it-------", Target: r.token}, time.Now().Add(far)).Code)
		// Somebody has cancelled one, and the ledger tells.
		require.NoError(t, s.store.Producer().Cancel(t.Context(), "told", "k", store.Durability{}).Err)

		require.Equal(t, Counts{Looked: 4, There: 1, Settled: 3}, s.audit(true, true))
		require.Equal(t, "stored", s.state(published))
		require.Equal(t, Counts{Looked: 3, There: 1, Settled: 1, Skipped: 1}, s.audit(true, false))
		require.Equal(t, "published", s.state(published))
		require.Equal(t, "stored", s.state(cancelled), "its relay says what the operation was told")
		require.Equal(t, "cancelled", s.state(told), "the ledger was read before")
		_, err := d.query("").add("DELETE FROM {t} WHERE id = ?", cancelIt).exec(t.Context(), d.db)
		require.NoError(t, err)
		s.audit(true, false)
		require.Equal(t, "cancelled", s.state(cancelled), "no operation is pending")
		for _, id := range []string{"published", "cancelled", "told"} {
			require.Nil(t, s.find("k", id), id)
		}
	})
}

func TestAuditLeavesWhatHasOperations(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		s.stored("operated", far)
		s.stored("free", far)
		s.insert(insert{id: "operated", key: "k", verb: verbCancel})
		s.lose()
		require.Equal(t, Counts{Looked: 2, PutBack: 1, Skipped: 1}, s.audit(true, false))
		require.Nil(t, s.find("k", "operated"))
		require.NotNil(t, s.find("k", "free"))
	})
}

func TestAuditRemembersCopies(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		head := s.stored("copy", past)
		s.stored("none", far)
		s.lose()
		move := s.insert(insert{id: "copy", key: "k", verb: verbReschedule, dueMs: s.due(far)})
		_, stop := s.start()
		require.Equal(t, reasonForgotten, s.requireState(move, stateUnknown))
		s.eventually("it is moved", func() bool { r, _ := s.read(head); return r.maybe && r.token != "" && r.dueMs > s.due(soon) })
		stop()
		_, err := d.query("").add("UPDATE {t} SET status = 1 WHERE id = ?", head).exec(t.Context(), d.db)
		require.NoError(t, err)
		s.lose()
		s.audit(true, false)
		require.True(t, s.find("k", "copy").MaybePublished, "it was published once, perhaps, and then moved")
		require.False(t, s.find("k", "none").MaybePublished)
	})
}

func TestAuditBlocked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		number := s.stored("taken", far)
		s.lose()
		request := store.Request{Message: &message.Message{ID: "taken", Key: "k", Topic: "t"}, When: store.When{Ms: s.due(far)}}
		answer := s.store.Producer().Schedule(t.Context(), []store.Request{request}, false, store.Durability{})[0]
		require.NoError(t, answer.Err)
		require.Equal(t, Counts{Looked: 1, Blocked: 1}, s.audit(true, false))
		require.Equal(t, "stored", s.state(number))
	})
}

func TestAuditRemovesWhatHasEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
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

		require.Equal(t, Counts{Looked: 2, There: 2, Removed: 3}, s.audit(true, true))
		require.NotNil(t, s.find("k", "published"), "a dry run changes nothing")
		require.Equal(t, Counts{Looked: 2, There: 2, Removed: 3}, s.audit(true, false))
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
	Store
	before func()
}

func (s spying) Pin(context.Context) (Store, error) { return s, nil }

func (s spying) Put(ctx context.Context, rows []store.Row) []store.Answer {
	s.before()
	return s.Store.Put(ctx, rows)
}

// TestAuditIsOvertaken: what is cancelled or moved between the read of a row and the
// put does not come back (I11).
func TestAuditIsOvertaken(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		s.stored("kept", far)
		cancelled, moved := s.stored("cancelled", far), s.stored("moved", far)
		s.lose()
		due := s.due(2 * far)
		var once sync.Once
		s.config.Queues[0].Store = spying{NewStore(s.store.Rows()), func() {
			once.Do(func() {
				cancel := s.insert(insert{id: "cancelled", key: "k", verb: verbCancel})
				move := s.insert(insert{id: "moved", key: "k", verb: verbReschedule, dueMs: due})
				_, stop := s.start()
				defer stop()
				s.requireState(cancel, stateCancelled)
				s.requireState(move, stateStored)
			})
		}}
		counts := s.audit(true, false)
		require.EqualValues(t, 1, counts.PutBack)
		require.Nil(t, s.find("k", "cancelled"))
		require.Nil(t, s.find("k", "moved"), "the relay brings it")
		require.Equal(t, "cancelled", s.state(cancelled))
		r, _ := s.read(moved)
		require.Equal(t, due, r.dueMs)
		require.NotNil(t, s.find("k", "kept"))
	})
}

// TestAuditReadsRowsAgain: a row is put as it is when it is put.
func TestAuditReadsRowsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		number := s.stored("one", far)
		s.lose()
		rows, _, _, err := d.storedAfter(t.Context(), s.orders, cursor{}, maxDueMs, 10, false)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		_, err = d.query("").add("UPDATE {t} SET status = 2 WHERE id = ?", number).exec(t.Context(), d.db)
		require.NoError(t, err)
		p := &pass{Auditor: s.auditor(), db: d, queue: &s.config.Queues[0], report: &report{}}
		require.NoError(t, p.work(bounded(t), chunk{rows: rows}))
		require.Nil(t, s.find("k", "one"))
		require.Equal(t, Counts{Skipped: 1}, p.report.counts)
	})
}

func TestAuditWaitsForRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		s.stored("one", far)
		storetest.Remove(t.Context(), s.rdb, s.orders, 2) // No layout: nothing can be put.
		done := make(chan error, 1)
		p := &pass{Auditor: s.auditor(), db: d, queue: &s.config.Queues[0], report: &report{}}
		go func() { done <- p.run(t.Context()) }()
		s.eventually("it has said so", func() bool { return s.logs.count("outbox_audit_away") == 1 })
		_, err := s.store.Layouts().Ensure(t.Context(), storetest.Layout(2))
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.NotNil(t, s.find("k", "one"))
		require.Equal(t, 1, s.logs.count("outbox_audit_away"))
	})
}

// TestAuditorFindsWhatNobodyNoticed: single messages that Redis has lost are put back,
// with no hint (I1).
func TestAuditorFindsWhatNobodyNoticed(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		watched := make(chan int, 100)
		s.config.Watch = func(_ string, overdue int, _ time.Duration) { watched <- overdue }
		s.stored("waits", far)
		s.stored("overdue", -time.Minute)
		defer s.run(s.auditor())()
		s.eventually("all are compared", func() bool { return s.logs.count("event=outbox_audited") == 1 })
		require.Equal(t, 1, <-watched)
		s.remove("waits")
		s.eventually("it is put back", func() bool { return s.find("k", "waits") != nil })
	})
}

// TestAuditorAfterALoss: all rows come back, what was told first stays told, and a
// loss in the middle of that begins it anew (I1).
func TestAuditorAfterALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		s.stored("one", far)
		lost := s.stored("lost", far)
		again := make(chan struct{})
		var a *Auditor
		var once sync.Once
		s.config.second = time.Hour // It would wait for its second look.
		s.config.Queues[0].Store = spying{NewStore(s.store.Rows()), func() {
			once.Do(func() {
				s.lose()
				a.Suspect(s.orders)
				close(again)
			})
		}}
		a = s.auditor()
		r, _ := s.read(lost)
		s.settler.Acknowledged(s.orders, []store.SettledRow{{Token: r.token, ID: "lost", Key: "k"}})
		s.lose()
		defer s.run(a)()
		<-again
		s.eventually("it is put back", func() bool { return s.find("k", "one") != nil })
		require.Nil(t, s.find("k", "lost"), "its acknowledgement was written first")
		s.eventually("all are compared", func() bool { return s.logs.count("event=outbox_audited") == 1 })
		require.Equal(t, 2, s.logs.count("event=outbox_audit_begins"))
		s.lose()
		a.Suspect(s.orders)
		a.Suspect("unknown")
		s.eventually("it is put back again", func() bool { return s.find("k", "one") != nil })
	})
}

// TestAuditorOfAnother: an auditor leaves a queue to the instance that has it.
func TestAuditorOfAnother(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		asked := make(chan struct{}, 100)
		var mu sync.Mutex
		mine := false
		s.config.Queues[0].Mine = func() bool {
			mu.Lock()
			defer mu.Unlock()
			asked <- struct{}{}
			return mine
		}
		s.stored("one", far)
		s.lose()
		defer s.run(s.auditor())()
		<-asked
		<-asked
		require.Nil(t, s.find("k", "one"))
		mu.Lock()
		mine = true
		mu.Unlock()
		s.eventually("it is put back", func() bool { return s.find("k", "one") != nil })
	})
}

// TestManyQueues: with more queues than connections nothing waits for itself.
func TestManyQueues(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newAuditing(t, d)
		d.db.SetMaxOpenConns(3)
		queue := s.config.Queues[0]
		for i := range 12 {
			queue.Name = fmt.Sprint("queue", i)
			s.config.Queues = append(s.config.Queues, queue)
		}
		s.stored("one", far)
		s.lose()
		defer s.run(s.auditor())()
		s.eventually("all are compared", func() bool { return s.logs.count("event=outbox_audited") == len(s.config.Queues) })
		require.NotNil(t, s.find("k", "one"))
	})
}
