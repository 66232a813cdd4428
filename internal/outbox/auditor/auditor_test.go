package auditor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const past, soon, far = outboxtest.Past, outboxtest.Soon, outboxtest.Far

type insert = outboxtest.Insert

// auditScene is a real Redis with a ledger, and an auditor.
type auditScene struct {
	*outboxtest.Real
	t       *testing.T
	settler *settler.Settler
	config  Config
}

func newAuditing(t *testing.T, d *outboxtest.Database) *auditScene {
	t.Helper()
	s := &auditScene{Real: outboxtest.NewReal(t, d), t: t}
	var err error
	s.settler, err = settler.New(settler.Config{
		Databases: []settler.Database{{Database: d.Database}},
		Queues:    []settler.Queue{{Name: s.Orders, Store: s.Store.Rows(), Held: func() []int { return []int{0, 1} }}},
	})
	require.NoError(t, err)
	s.Store.WithLedger(func(shard int) { s.settler.Notify(s.Orders, shard) })
	s.config = Config{
		Databases: []*table.Database{d.Database}, Queues: []Queue{{Queue: s.Queue}},
		Flush: s.settler.Flush, Logger: s.Logger(),
		second: time.Millisecond, grace: time.Millisecond, overdue: time.Second,
	}
	return s
}

// Lose is what happens where Redis comes back empty, and its bridges have seen it: the rows are
// still theirs.
func (s *auditScene) Lose() {
	s.t.Helper()
	s.Real.Lose()
	s.DB.Exec(s.t, "DELETE FROM {t}_lives WHERE queue = ?", s.Orders)
}

// relay runs a relay until the returned function is called, or the test ends.
func (s *auditScene) relay() (stop func()) {
	s.t.Helper()
	relaying, err := relay.New(relay.Config{Database: s.DB.Database, Queues: []outbox.Queue{s.Queue}, Clock: s.Store.Clock, Poll: 10 * time.Millisecond})
	require.NoError(s.t, err)
	return s.Run(relaying.Run)
}

func (s *auditScene) auditor() *Auditor {
	s.t.Helper()
	a, err := New(s.config)
	require.NoError(s.t, err)
	return a
}

func (s *auditScene) audit(all, dry bool) Counts {
	s.t.Helper()
	counts, err := s.auditor().Audit(outboxtest.Bounded(s.t), s.Orders, all, dry, nil)
	require.NoError(s.t, err)
	return counts
}

// remove deletes a message from Redis, as a failover does that takes its write back.
func (s *auditScene) remove(id string) {
	s.t.Helper()
	for shard := range 2 {
		for _, name := range []string{"due", "msg", "attempts"} {
			key := storetest.Key(s.Store.Name(), shard, name)
			if name == "due" {
				require.NoError(s.t, s.RDB.ZRem(s.t.Context(), key, message.Member(id, "k")).Err())
			} else {
				require.NoError(s.t, s.RDB.HDel(s.t.Context(), key, message.Member(id, "k")).Err())
			}
		}
	}
}

// mark marks a message maybe published, as after an unknown outcome.
func (s *auditScene) mark(id string) {
	s.t.Helper()
	for shard := range 2 {
		if s.RDB.HExists(s.t.Context(), storetest.Key(s.Orders, shard, "msg"), message.Member(id, "k")).Val() {
			require.NoError(s.t, s.RDB.HSet(s.t.Context(), storetest.Key(s.Orders, shard, "attempts"), message.Member(id, "k"), "0 1 1 0").Err())
		}
	}
}

func TestAuditPutsBack(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		future := s.Stored("future", far, func(i *insert) { i.Headers = `{"a":"b"}` })
		s.Stored("overdue", -time.Minute)
		s.StoreMany(2500, far)
		pending := s.Insert(insert{ID: "pending", DueMs: s.Due(far)})
		s.Insert(insert{ID: "other", Queue: "others", State: table.StateStored, DueMs: s.Due(far)})
		before, _ := s.Read(future)
		s.Lose()

		require.Equal(t, Counts{Looked: 2502, PutBack: 2502}, s.audit(true, true))
		require.Nil(t, s.Find("k", "future"), "a dry run changes nothing")
		require.Equal(t, Counts{Looked: 1, PutBack: 1}, s.audit(false, false))
		require.True(t, s.Find("k", "overdue").MaybePublished, "a copy may be out")

		var told []Counts
		counts, err := s.auditor().Audit(outboxtest.Bounded(t), "", true, false, func(c Counts) { told = append(told, c) })
		require.NoError(t, err)
		require.Equal(t, Counts{Looked: 2502, PutBack: 2501, There: 1}, counts)
		require.Equal(t, counts, told[len(told)-1])
		require.Greater(t, len(told), 3)

		found := s.Find("k", "future")
		require.NotNil(t, found)
		require.Equal(t, before.Token, found.Token)
		require.Equal(t, before.DueMs, found.DueAt.UnixMilli())
		require.Equal(t, map[string]string{"a": "b"}, found.Headers)
		require.Equal(t, "b", string(found.Body))
		require.False(t, found.MaybePublished)
		require.Nil(t, s.Find("", "pending"), "the relay brings it")
		require.Equal(t, "pending", s.State(pending))

		require.Equal(t, Counts{Looked: 2502, There: 2502}, s.audit(true, false), "again, nothing is missing")
		s.Sound()
	})
}

// TestAuditDueAtZero: a message that a producer in SQL wants at once comes back, by hand,
// after a loss, and if nobody has noticed that it is gone; and it is found among any
// number of operations that have ended (I1).
func TestAuditDueAtZero(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		s.config.Rate = 20
		zero := func(i *insert) { i.DueMs = 0 }
		s.Stored("first", 0, zero)
		s.StoreMany(2500, far)
		d.Exec(t, "INSERT INTO {t} (queue, message_key, message_id, op, status, finished_ms, due_ms)"+
			" SELECT queue, message_key, message_id, 2, 1, 5, 7 FROM {t} WHERE message_id LIKE 'many-%'")
		s.Stored("last", 0, zero)
		s.Lose()
		require.Equal(t, Counts{Looked: 2, PutBack: 2}, s.audit(false, false))
		require.Equal(t, Counts{Looked: 2502, PutBack: 2500, There: 2}, s.audit(true, false))
		s.Lose()
		defer s.Run(s.auditor().Run)()
		s.Eventually("all are compared", func() bool { return s.Logs.Count("event=outbox_audited") == 1 })
		require.Equal(t, 1, s.Logs.Count(" removed=0 "), "all counts are logged")
		require.NotNil(t, s.Find("k", "first"))
		s.remove("last")
		s.Eventually("it is put back", func() bool { return s.Find("k", "last") != nil })
	})
}

// TestAuditManyOverdue: however many rows stay overdue, those behind them have their
// turn, and are counted.
func TestAuditManyOverdue(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		watched := make(chan int, 1000)
		s.config.Watch = func(_ string, overdue int, _ time.Duration) { watched <- overdue }
		s.config.Rate = 20
		s.StoreMany(50, -2*time.Minute)
		s.Take() // As if they were dead letters: Redis has them, and they stay.
		request := store.Request{Message: &message.Message{ID: "taken", Key: "k", Topic: "t"}, When: store.When{Ms: s.Due(far)}}
		require.NoError(t, s.Store.Producer().Schedule(t.Context(), []store.Request{request}, false, store.Durability{})[0].Err)
		s.Insert(insert{ID: "taken", Key: "k", State: table.StateStored, DueMs: s.Due(-time.Minute)})
		defer s.Run(s.auditor().Run)()
		for ended := outboxtest.Bounded(t).Done(); ; {
			select {
			case overdue := <-watched:
				if overdue == 1 {
					return
				}
				require.Zero(t, overdue)
			case <-ended:
				require.FailNow(t, "the last one is never counted")
			}
		}
	})
}

func TestAuditLargeRows(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		for i := range 5 {
			s.Stored(fmt.Sprint("large", i), far, func(i *insert) { i.Body = string(make([]byte, 200<<10)) })
		}
		s.Lose()
		require.Equal(t, Counts{Looked: 5, PutBack: 5}, s.audit(true, false))
		require.Len(t, s.Find("k", "large3").Body, 200<<10)
	})
}

// TestAuditObeysRedis: what Redis remembers to have ended stays so, and its row
// learns of it (I11).
func TestAuditObeysRedis(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		published, cancelled, moved := s.Stored("published", past), s.Stored("cancelled", far), s.Stored("moved", far)
		told := s.Stored("told", far)
		ours := s.Store // Another bridge publishes it, without a ledger.
		s.Store = store.New(s.RDB, storetest.Prefix, s.Orders)
		_, err := s.Store.LoadLayout(t.Context())
		require.NoError(t, err)
		s.Publish()
		s.Store = ours
		// A relay has cancelled one and moved one; the rows do not know it yet.
		r, _ := s.Read(cancelled)
		cancelIt := s.Insert(insert{ID: "cancelled", Key: "k", Verb: table.VerbCancel})
		require.Equal(t, store.Done, s.Store.Rows().CancelRow(t.Context(), store.Operation{ID: "cancelled", Key: "k", Token: "~cancels-it-----", Target: r.Token}).Code)
		r, _ = s.Read(moved)
		require.Equal(t, store.Done, s.Store.Rows().RescheduleRow(t.Context(), store.Operation{ID: "moved", Key: "k", Token: "~moves-it-------", Target: r.Token}, time.Now().Add(far)).Code)
		// Somebody has cancelled one, and the ledger tells.
		require.NoError(t, s.Store.Producer().Cancel(t.Context(), "told", "k", store.Durability{}).Err)

		require.Equal(t, Counts{Looked: 4, There: 1, Settled: 3}, s.audit(true, true))
		require.Equal(t, "stored", s.State(published))
		require.Equal(t, Counts{Looked: 3, There: 1, Settled: 1, Skipped: 1}, s.audit(true, false))
		require.Equal(t, "published", s.State(published))
		require.Equal(t, "stored", s.State(cancelled), "its relay says what the operation was told")
		require.Equal(t, "cancelled", s.State(told), "the ledger was read before")
		d.Exec(t, "DELETE FROM {t} WHERE id = ?", cancelIt)
		s.audit(true, false)
		require.Equal(t, "cancelled", s.State(cancelled), "no operation is pending")
		for _, id := range []string{"published", "cancelled", "told"} {
			require.Nil(t, s.Find("k", id), id)
		}
	})
}

func TestAuditLeavesWhatHasOperations(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		s.Stored("operated", far)
		s.Stored("free", far)
		s.Insert(insert{ID: "operated", Key: "k", Verb: table.VerbCancel})
		s.Lose()
		require.Equal(t, Counts{Looked: 2, PutBack: 1, Skipped: 1}, s.audit(true, false))
		require.Nil(t, s.Find("k", "operated"))
		require.NotNil(t, s.Find("k", "free"))
	})
}

func TestAuditRemembersCopies(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		head := s.Stored("copy", past)
		s.Stored("none", far)
		s.Lose()
		move := s.Insert(insert{ID: "copy", Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(far)})
		stop := s.relay()
		require.Equal(t, "it may have been published before", s.RequireState(move, table.StateUnknown))
		s.Eventually("it is moved", func() bool { r, _ := s.Read(head); return r.Maybe && r.Token != "" && r.DueMs > s.Due(soon) })
		stop()
		d.Exec(t, "UPDATE {t} SET status = 1 WHERE id = ?", head)
		s.Lose()
		s.audit(true, false)
		require.True(t, s.Find("k", "copy").MaybePublished, "it was published once, perhaps, and then moved")
		require.False(t, s.Find("k", "none").MaybePublished)
	})
}

// TestMarkOutlivesALoss: that a copy may be out is told to the row, whoever reschedules
// the message, and so it outlives a loss; and no cancel says that it was not published
// (I11).
func TestMarkOutlivesALoss(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		heads := map[string]int64{}
		for _, id := range []string{"client's", "row's", "died", "ended"} {
			heads[id] = s.Stored(id, soon)
			s.mark(id)
		}
		for _, id := range []string{"client's", "ended"} { // Without the database.
			require.NoError(t, s.Store.Producer().Reschedule(t.Context(), id, "k", store.When{Ms: s.Due(far)}, store.Durability{}).Err)
		}
		s.Insert(insert{ID: "row's", Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(far)})
		// A relay that died before it told its row, more than a tombstone's life ago.
		died := s.Insert(insert{ID: "died", Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(far)})
		head, _ := s.Read(heads["died"])
		op, _ := s.Read(died)
		o := store.Operation{ID: "died", Key: "k", Token: op.Token, Target: head.Token}
		require.Equal(t, store.DoneMaybePublished, s.Store.Rows().RescheduleRow(t.Context(), o, op.DueAt()).Code)
		for shard := range 2 {
			require.NoError(t, s.RDB.Del(t.Context(), storetest.Key(s.Orders, shard, "gone"), storetest.Key(s.Orders, shard, "gonettl")).Err())
		}
		stop := s.relay()
		s.Drained()
		stop()
		require.NoError(t, s.settler.Flush(outboxtest.Bounded(t)))
		require.NoError(t, s.Store.Producer().Cancel(t.Context(), "ended", "k", store.Durability{}).Err)
		require.NoError(t, s.settler.Flush(outboxtest.Bounded(t)))
		require.Equal(t, "cancelled", s.State(heads["ended"]))
		s.Lose()
		require.EqualValues(t, 3, s.audit(true, false).PutBack)
		for id, number := range heads {
			r, _ := s.Read(number)
			require.True(t, r.Maybe, id)
			if id != "ended" {
				require.True(t, s.Find("k", id).MaybePublished, id)
			}
		}
		defer s.relay()()
		for id, number := range heads {
			cancel := s.Insert(insert{ID: id, Key: "k", Verb: table.VerbCancel, Target: number})
			s.RequireState(cancel, table.StateUnknown)
		}
	})
}

// TestMarkOutlivesAClientsCancel: that a copy may be out is known to Redis alone, and a client cancels the message there.
// Its row learns both, or the auditor does, and no later cancel is told that it was in time (I11).
func TestMarkOutlivesAClientsCancel(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		heads := map[string]int64{}
		for _, id := range []string{"settled", "audited", "operated"} {
			heads[id] = s.Stored(id, soon)
			s.mark(id)
		}
		cancel := func(id string) {
			require.NoError(t, s.Store.Producer().Cancel(t.Context(), id, "k", store.Durability{}).Err)
		}
		cancel("settled")
		require.NoError(t, s.settler.Flush(outboxtest.Bounded(t)))
		cancel("audited")
		s.config.Flush = func(context.Context) error { return nil }
		require.EqualValues(t, 1, s.audit(true, false).Settled)
		cancel("operated")
		first := s.Insert(insert{ID: "operated", Key: "k", Verb: table.VerbCancel})
		stop := s.relay()
		s.RequireState(first, table.StateUnknown)
		stop()
		for id, number := range heads {
			r, reason := s.Read(number)
			require.Equal(t, []any{"cancelled", true, table.ReasonCopy}, []any{r.State.String(), r.Maybe, reason}, id)
		}
		defer s.relay()()
		for id, number := range heads {
			s.RequireState(s.Insert(insert{ID: id, Key: "k", Verb: table.VerbCancel, Target: number}), table.StateUnknown)
		}
	})
}

// TestADeadLettersRowLivesOn: what a broker refuses for good ends no row, so it outlives a loss of Redis, and is published
// when it is redriven; only who purges it ends the row.
func TestADeadLettersRowLivesOn(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		number, purged := s.Stored("dead", past), s.Stored("purged", past)
		bury := func() {
			for shard, claim := range s.Take() {
				verdicts := make([]message.Verdict, len(claim.Messages))
				for i := range verdicts {
					verdicts[i] = message.Verdict{Verb: message.VerbDeadLetter, Reason: "too large", Attempts: message.Attempts{Failures: 1, Begun: 1}}
				}
				if len(verdicts) > 0 {
					_, err := s.Store.Shard(shard).Settle(t.Context(), message.Settlement{Claim: claim, Verdicts: verdicts})
					require.NoError(t, err)
				}
			}
			require.NoError(t, s.settler.Flush(outboxtest.Bounded(t)))
		}
		bury()
		require.Equal(t, "too large", s.Find("k", "dead").Reason)
		require.Equal(t, Counts{Looked: 2, There: 2}, s.audit(true, false))
		s.Lose()
		require.EqualValues(t, 2, s.audit(true, false).PutBack)
		bury()
		codes, err := inspect.NewAdmin(s.Store).Purge(t.Context(), []string{message.Member("purged", "k")})
		require.NoError(t, err)
		require.Equal(t, []store.Code{store.Done}, codes)
		codes, err = inspect.NewAdmin(s.Store).Redrive(t.Context(), []string{message.Member("dead", "k")})
		require.NoError(t, err)
		require.Equal(t, []store.Code{store.Done}, codes)
		require.Equal(t, "stored", s.State(number))
		require.Eventually(t, func() bool { // It is due in the next millisecond.
			s.Publish()
			return s.Find("k", "dead") == nil
		}, time.Minute, time.Millisecond)
		require.NoError(t, s.settler.Flush(outboxtest.Bounded(t)))
		require.Equal(t, "published", s.State(number))
		require.Equal(t, "cancelled", s.State(purged))
	})
}

func TestAuditBlocked(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		number := s.Stored("taken", far)
		s.Lose()
		request := store.Request{Message: &message.Message{ID: "taken", Key: "k", Topic: "t"}, When: store.When{Ms: s.Due(far)}}
		answer := s.Store.Producer().Schedule(t.Context(), []store.Request{request}, false, store.Durability{})[0]
		require.NoError(t, answer.Err)
		require.Equal(t, Counts{Looked: 1, Blocked: 1}, s.audit(true, false))
		require.Equal(t, "stored", s.State(number))
	})
}

func TestAuditRemovesWhatHasEnded(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		ended := map[string]table.State{"published": table.StatePublished, "cancelled": table.StateCancelled, "unknown": table.StateUnknown, "flies": table.StatePublished}
		for id, how := range ended {
			due := far
			if id == "flies" {
				due = past
			}
			number := s.Stored(id, due)
			d.Exec(t, "UPDATE {t} SET status = ? WHERE id = ?", int64(how), number)
		}
		s.Take() // One is in flight.
		// The same identity again: the row that has ended had another token.
		s.Insert(insert{ID: "again", Key: "k", State: table.StatePublished, DueMs: s.Due(far)})
		s.Stored("again", far)
		s.Stored("lives", far)
		unlisted := s.Stored("unlisted", far)
		d.Exec(t, "DELETE FROM {t} WHERE id = ?", unlisted)

		// The message may be another one by the time that it is removed.
		n, err := s.Store.Rows().Remove(t.Context(), []store.RowFate{{Token: "~another-token--", ID: "lives", Key: "k", What: store.FatePublished}})
		require.NoError(t, err)
		require.Zero(t, n)

		require.Equal(t, Counts{Looked: 2, There: 2, Removed: 3}, s.audit(true, true))
		require.NotNil(t, s.Find("k", "published"), "a dry run changes nothing")
		require.Equal(t, Counts{Looked: 2, There: 2, Removed: 3}, s.audit(true, false))
		for _, id := range []string{"published", "cancelled", "unknown"} {
			require.Nil(t, s.Find("k", id), id)
		}
		for _, id := range []string{"flies", "again", "lives", "unlisted"} {
			require.NotNil(t, s.Find("k", id), id)
		}
		s.Sound()
	})
}

// backup is what Redis has of the queue.
func (s *auditScene) backup() map[string]string {
	s.t.Helper()
	saved := map[string]string{}
	keys, err := s.RDB.Keys(s.t.Context(), "*"+s.Orders+"*").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		saved[key], err = s.RDB.Dump(s.t.Context(), key).Result()
		require.NoError(s.t, err)
	}
	return saved
}

// restore puts Redis back to what it had.
func (s *auditScene) restore(saved map[string]string) {
	s.t.Helper()
	storetest.Remove(s.t.Context(), s.RDB, s.Orders, 2)
	for key, value := range saved {
		require.NoError(s.t, s.RDB.RestoreReplace(s.t.Context(), key, 0, value).Err())
	}
}

// TestAuditRestored: a message that waits under a token from before gives way to what its
// row says now, so that it is published neither at its old time nor twice (I2, I12). What
// lives in another database stays, and so does what no row tells of.
func TestAuditRestored(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		other := d.With(t, func(c *table.Config) { c.Table = "other" })
		other.MakeTable(t)
		s.config.Others = []*table.Database{other.Database}
		moved, marked, elsewhere := s.Stored("moved", soon), s.Stored("marked", soon), s.Stored("elsewhere", soon)
		lost, again, unlisted := s.Stored("lost", soon), s.Stored("again", soon), s.Stored("unlisted", soon)
		flies := s.Stored("flies", past)
		flying, _ := s.Read(flies)
		s.mark("marked")
		old, _ := s.Read(moved)
		before, _ := s.Read(elsewhere)
		s.Take()
		saved := s.backup()

		// What becomes of them after the backup.
		due := s.Due(far)
		d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = 5 WHERE id = ?", again)
		d.Exec(t, "DELETE FROM {t} WHERE id = ?", unlisted)
		for id, number := range map[string]int64{"moved": moved, "marked": marked, "elsewhere": elsewhere, "lost": lost, "flies": flies} {
			status := 1
			if id == "lost" { // It was lost once already, and waits for the relay since.
				status = 0
			}
			d.Exec(t, "UPDATE {t} SET status = ?, token = ?, due_ms = ?, revision = 1000 WHERE id = ?", status, fmt.Sprintf("~%-15s", id), due, number)
		}
		later := s.Insert(insert{ID: "again", Key: "k", State: table.StateStored, DueMs: due, Body: "later"})
		s.Insert(insert{ID: "unlisted", Key: "k", State: table.StateStored, DueMs: due})
		other.Exec(t, "INSERT INTO {t} (queue, message_key, message_id, status, topic, body, due_ms, token) VALUES (?, 'k', 'elsewhere', 1, 't', ?, 5, ?)",
			s.Orders, []byte("theirs"), before.Token)
		s.restore(saved)

		require.Equal(t, Counts{Looked: 6, PutBack: 5, Removed: 1, Blocked: 2}, s.audit(true, true), "a dry run does not ask what is in flight")
		require.Equal(t, old.Token, s.Find("k", "moved").Token)
		counts := s.audit(true, false)
		require.EqualValues(t, 4, counts.PutBack, "three that are stored, and the pending one")
		for id, number := range map[string]int64{"moved": moved, "marked": marked, "lost": lost, "again": later} {
			found := s.Find("k", id)
			r, _ := s.Read(number)
			require.Equal(t, due, found.DueAt.UnixMilli(), id)
			require.Equal(t, r.Token, found.Token, id)
			require.Equal(t, "stored", s.State(number), id)
			require.Equal(t, id == "marked", found.MaybePublished, id)
			require.Equal(t, id == "marked", r.Maybe, id)
		}
		require.Equal(t, "later", string(s.Find("k", "again").Body))
		require.Equal(t, before.Token, s.Find("k", "elsewhere").Token, "it is another database's")
		require.Less(t, s.Find("k", "unlisted").DueAt.UnixMilli(), due, "nobody knows whose it is")
		require.Equal(t, flying.Token, s.Find("k", "flies").Token)
		r, _ := s.Read(flies)
		require.True(t, r.Maybe, "it is being published at its old time")
		late := store.Row{Token: old.Token, Message: s.MessageOf(old), DueAt: old.DueAt()}
		require.Equal(t, store.Mine, s.Store.Rows().Put(t.Context(), []store.Row{late})[0].Code, "a late writer")
		s.Sound()
	})
}

// spy is a queue whose Put does something before.
type spy struct {
	outbox.Store
	before func()
}

func (s spy) Pin(context.Context) (outbox.Store, error) { return s, nil }

func (s spy) Put(ctx context.Context, rows []store.Row) []store.Answer {
	s.before()
	return s.Store.Put(ctx, rows)
}

// TestAuditIsOvertaken: what is cancelled or moved between the read of a row and the
// put does not come back (I11).
func TestAuditIsOvertaken(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		s.Stored("kept", far)
		cancelled, moved := s.Stored("cancelled", far), s.Stored("moved", far)
		s.Lose()
		due := s.Due(2 * far)
		var once sync.Once
		s.config.Queues[0].Store = spy{outbox.NewStore(s.Store.Rows()), func() {
			once.Do(func() {
				cancel := s.Insert(insert{ID: "cancelled", Key: "k", Verb: table.VerbCancel})
				move := s.Insert(insert{ID: "moved", Key: "k", Verb: table.VerbReschedule, DueMs: due})
				stop := s.relay()
				defer stop()
				s.RequireState(cancel, table.StateCancelled)
				s.RequireState(move, table.StateStored)
			})
		}}
		counts := s.audit(true, false)
		require.EqualValues(t, 1, counts.PutBack)
		require.Nil(t, s.Find("k", "cancelled"))
		require.Nil(t, s.Find("k", "moved"), "the relay brings it")
		require.Equal(t, "cancelled", s.State(cancelled))
		r, _ := s.Read(moved)
		require.Equal(t, due, r.DueMs)
		require.NotNil(t, s.Find("k", "kept"))
	})
}

// TestAuditReadsRowsAgain: a row is put as it is when it is put.
func TestAuditReadsRowsAgain(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		number := s.Stored("one", far)
		s.Lose()
		page, err := d.Stored().After(t.Context(), s.Orders, d.Stored().Behind(), table.MaxDueMs, 10, false)
		require.NoError(t, err)
		require.Len(t, page.Rows, 1)
		d.Exec(t, "UPDATE {t} SET status = 2 WHERE id = ?", number)
		p := &pass{Auditor: s.auditor(), db: d.Database, queue: &s.config.Queues[0], report: &report{}}
		c := p.comparison()
		c.ask(page.Rows)
		require.NoError(t, p.work(outboxtest.Bounded(t), c))
		require.Nil(t, s.Find("k", "one"))
		require.Equal(t, Counts{Skipped: 1}, p.report.counts)
	})
}

func TestAuditWaitsForRedis(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		s.Stored("one", far)
		storetest.Remove(t.Context(), s.RDB, s.Orders, 2) // No layout: nothing can be put.
		done := make(chan error, 1)
		p := &pass{Auditor: s.auditor(), db: d.Database, queue: &s.config.Queues[0], report: &report{}}
		go func() { done <- p.run(t.Context()) }()
		s.Eventually("it has said so", func() bool { return s.Logs.Count("outbox_audit_away") == 1 })
		_, err := s.Store.Layouts().Ensure(t.Context(), storetest.Layout(2))
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.NotNil(t, s.Find("k", "one"))
		require.Equal(t, 1, s.Logs.Count("outbox_audit_away"))
	})
}

// TestAuditorFindsWhatNobodyNoticed: single messages that Redis has lost are put back,
// with no hint (I1).
func TestAuditorFindsWhatNobodyNoticed(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		watched := make(chan int, 100)
		s.config.Watch = func(_ string, overdue int, _ time.Duration) { watched <- overdue }
		s.config.Flush = nil
		ended := s.Stored("ended", -time.Minute)
		s.Publish()
		tx, commit := s.Begin()
		d.ExecIn(t, tx, "SELECT id FROM {t} WHERE id = ? FOR UPDATE", ended)
		defer commit()
		s.Stored("waits", far)
		s.Stored("late", -time.Minute)
		defer s.Run(s.auditor().Run)()
		s.Eventually("all are compared", func() bool { return s.Logs.Count("event=outbox_audited") == 1 })
		require.Equal(t, 1, <-watched, "of the other one, Redis has the message")
		s.remove("waits")
		s.Eventually("it is put back", func() bool { return s.Find("k", "waits") != nil })
	})
}

// TestAuditorTakesBack: what an instance has told of a queue, it takes back when another
// one audits it.
func TestAuditorTakesBack(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		var other atomic.Bool
		watched, unwatched := make(chan struct{}), make(chan struct{})
		var first, last sync.Once
		s.config.Queues[0].Mine = func() bool { return !other.Load() }
		s.config.Watch = func(string, int, time.Duration) { first.Do(func() { close(watched) }) }
		s.config.Unwatch = func(string) { last.Do(func() { close(unwatched) }) }
		defer s.Run(s.auditor().Run)()
		for _, told := range []chan struct{}{watched, unwatched} {
			select {
			case <-told:
				other.Store(true)
			case <-outboxtest.Bounded(t).Done():
				require.Fail(t, "it says nothing")
			}
		}
	})
}

// TestAuditorChanges: rows of a queue that is gone are left alone, and those of one that comes are compared at once.
func TestAuditorChanges(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		unwatched := make(chan string, 1)
		s.config.Unwatch = func(queue string) { unwatched <- queue }
		s.Stored("waits", far)
		a := s.auditor()
		defer s.Run(a.Run)()
		s.Eventually("all are compared", func() bool { return s.Logs.Count("event=outbox_audited") == 1 })
		a.Change([]string{s.Orders}, nil)
		select {
		case queue := <-unwatched:
			require.Equal(t, s.Orders, queue)
		case <-outboxtest.Bounded(t).Done():
			require.Fail(t, "it is still watched")
		}
		s.remove("waits")
		a.Suspect(s.Orders)
		_, err := a.Audit(outboxtest.Bounded(t), s.Orders, true, true, nil)
		require.ErrorIs(t, err, ErrNoQueue)
		require.Nil(t, s.Find("k", "waits"))
		a.Change(nil, []Queue{{Queue: s.Queue}})
		s.Eventually("it is put back", func() bool { return s.Find("k", "waits") != nil })
		require.Equal(t, 2, s.Logs.Count("event=outbox_audit_begins"))
	})
}

// TestAuditorAfterALoss: all rows come back, what was told first stays told, and a
// loss in the middle of that begins it anew (I1).
func TestAuditorAfterALoss(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		s.Stored("one", far)
		lost := s.Stored("lost", far)
		again := make(chan struct{})
		var a *Auditor
		var once sync.Once
		s.config.second = time.Hour // It would wait for its second look.
		s.config.Queues[0].Store = spy{outbox.NewStore(s.Store.Rows()), func() {
			once.Do(func() {
				s.Lose()
				a.Suspect(s.Orders)
				close(again)
			})
		}}
		a = s.auditor()
		r, _ := s.Read(lost)
		s.settler.Acknowledged(s.Orders, []store.RowFate{{Token: r.Token, ID: "lost", Key: "k"}})
		s.Lose()
		defer s.Run(a.Run)()
		<-again
		s.Eventually("it is put back", func() bool { return s.Find("k", "one") != nil })
		require.Nil(t, s.Find("k", "lost"), "its acknowledgement was written first")
		s.Eventually("all are compared", func() bool { return s.Logs.Count("event=outbox_audited") == 1 })
		require.Equal(t, 2, s.Logs.Count("event=outbox_audit_begins"))
		s.Lose()
		a.Suspect(s.Orders)
		a.Suspect("unknown")
		s.Eventually("it is put back again", func() bool { return s.Find("k", "one") != nil })
	})
}

// TestAuditorOfAnother: an auditor leaves a queue to the instance that has it.
func TestAuditorOfAnother(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
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
		s.Stored("one", far)
		s.Lose()
		defer s.Run(s.auditor().Run)()
		<-asked
		<-asked
		require.Nil(t, s.Find("k", "one"))
		mu.Lock()
		mine = true
		mu.Unlock()
		s.Eventually("it is put back", func() bool { return s.Find("k", "one") != nil })
	})
}

// TestManyQueues: with more queues than connections nothing waits for itself.
func TestManyQueues(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d.With(t, func(c *table.Config) { c.Connections = 3 }))
		queue := s.config.Queues[0]
		for i := range 12 {
			queue.Name = fmt.Sprint("queue", i)
			s.config.Queues = append(s.config.Queues, queue)
		}
		s.Stored("one", far)
		s.Lose()
		defer s.Run(s.auditor().Run)()
		s.Eventually("all are compared", func() bool { return s.Logs.Count("event=outbox_audited") == len(s.config.Queues) })
		require.NotNil(t, s.Find("k", "one"))
	})
}

// TestMarks: what was due before Redis has lost it may have been published (I11).
func TestMarks(t *testing.T) {
	t.Parallel()
	require.Equal(t, store.MarkDue, markOf(&table.Row{}))
	require.Equal(t, store.MarkAlways, markOf(&table.Row{Maybe: true}))
}

// TestAuditRestoredAfterItsEnd: a message that was rescheduled and has ended since waits in a Redis that was
// put back under a token from before, its first one or that of a reschedule. Its row tells that it has ended.
func TestAuditRestoredAfterItsEnd(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		const then, last = "~then-----------", "~last-----------"
		first, moved, lives := s.Stored("first", soon), s.Stored("moved", soon, func(i *insert) { i.Token = then }), s.Stored("lives", soon)
		later := s.Stored("later", soon)
		saved := s.backup()

		end := func(number int64, state table.State) {
			d.Exec(t, "UPDATE {t} SET status = ?, finished_ms = 5, uid = token, token = ? WHERE id = ?", int64(state), last, number)
		}
		end(first, table.StateCancelled)
		end(later, table.StatePublished)
		again := s.Insert(insert{ID: "later", Key: "k", State: table.StateStored, DueMs: s.Due(far), Body: "again"})
		s.Insert(insert{ID: "moved", Key: "k", Verb: table.VerbReschedule, State: table.StateStored, Token: then, Target: moved})
		d.Exec(t, "UPDATE {t} SET status = 3, finished_ms = 5, uid = '~first----------', token = ? WHERE id = ?", last, moved)
		s.Insert(insert{ID: "lives", Key: "k", Verb: table.VerbReschedule, State: table.StateStored, Token: last, Target: lives})
		s.restore(saved)

		counts := s.audit(true, false)
		require.EqualValues(t, 2, counts.Removed)
		require.EqualValues(t, 1, counts.PutBack)
		require.Nil(t, s.Find("k", "first"), "cancelled, and so not published")
		require.Nil(t, s.Find("k", "moved"))
		require.NotNil(t, s.Find("k", "lives"))
		r, _ := s.Read(again)
		require.Equal(t, r.Token, s.Find("k", "later").Token)
		s.Sound()
	})
}
