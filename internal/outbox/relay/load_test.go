package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

func TestLoad(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		due := s.Due(soon)
		good := s.Insert(insert{Key: "k", ID: "good", DueMs: due, Headers: `{"a": "b"}`, Body: "hello\x00\xff"})
		large := s.Insert(insert{ID: "large", DueMs: s.Due(-soon), Body: strings.Repeat("x", 900<<10)})
		far := s.Insert(insert{ID: "far", DueMs: s.Due(2 * time.Hour)})
		plain := s.Insert(insert{Queue: "mails", ID: "plain", DueMs: 0})
		s.start()
		s.RequireStored(good)
		s.RequireStored(large)
		s.RequireStored(plain)
		m := s.redis.get(table.Identity{Queue: "orders", Key: "k", ID: "good"})
		require.Equal(t, "hello\x00\xff", string(m.message.Body))
		require.Equal(t, map[string]string{"a": "b"}, m.message.Headers)
		require.Equal(t, "topic", m.message.Topic)
		require.Equal(t, due, m.due.UnixMilli())
		require.True(t, strings.HasPrefix(m.token, "~"))
		require.False(t, m.marked)
		require.Len(t, s.live("large").message.Body, 900<<10)
		require.Empty(t, s.redis.get(table.Identity{Queue: "mails", Key: "", ID: "plain"}).message.Body)
		r, _ := s.Read(far)
		require.Equal(t, table.StatePending, r.State, "beyond the horizon")
		require.Nil(t, s.live("far"))
	})
}

// TestStored: a row whose message Redis has lives on, and holds its identity.
func TestStored(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.start()
		a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
		s.RequireStored(a)
		require.Equal(t, 1, s.Count("status = 1 AND finished_ms IS NULL"))
		s.Eventually("it is counted", func() bool { return s.observer.count("orders schedule stored") == 1 })
		_, err := s.TryInsert(t.Context(), d.SQL, insert{ID: "a", DueMs: 1})
		require.Error(t, err, "it holds its identity")
	})
}

// TestPoison: rows that can never be stored go aside alone, with their reasons.
func TestPoison(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		bad := map[string]int64{
			"token":   s.Insert(insert{ID: "token", DueMs: 1, Token: "~short"}),
			"no row":  s.Insert(insert{ID: "no row", DueMs: 1, Token: "~~34567890123456"}),
			"tilde":   s.Insert(insert{ID: "tilde", DueMs: 1, Token: "0123456789abcdef"}),
			"topic":   s.Insert(insert{ID: "topic", DueMs: 1, Topic: "a b"}),
			"headers": s.Insert(insert{ID: "headers", DueMs: 1, Headers: `["a"]`}),
			"number":  s.Insert(insert{ID: "number", DueMs: 1, Headers: `{"a": 1}`}),
			"null":    s.Insert(insert{ID: "null", DueMs: 1, Headers: `{"a": null}`}),
			"header":  s.Insert(insert{ID: "header", DueMs: 1, Headers: `{"delay-x": "1"}`}),
			"early":   s.Insert(insert{ID: "early", DueMs: -1}),
			"id":      s.Insert(insert{ID: " ", DueMs: 1}),
			"size":    s.Insert(insert{ID: "size", DueMs: 1, Body: strings.Repeat("x", 1<<20)}),
		}
		good := s.Insert(insert{ID: "good", DueMs: 2, Headers: "null"})
		s.start()
		s.RequireStored(good)
		for name, number := range bad {
			require.NotEmpty(t, s.RequireState(number, table.StateRefused), name)
		}
		s.Eventually("they are counted", func() bool { return s.observer.count("orders schedule refused") == len(bad) })
		s.Eventually("it was said", func() bool { return s.Logs.Count("outbox_refused") > 0 })
		require.Equal(t, 1, s.Logs.Count("outbox_refused"), "once a minute")
		require.Len(t, s.redis.live, 1)
	})
}

// TestUnknownVerb: a row that asks for what there is not is refused, and is not pending
// for ever.
func TestUnknownVerb(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		before := s.Insert(insert{ID: "before", Verb: -1, DueMs: s.Due(soon)})
		s.start()
		for _, number := range []int64{before, s.Insert(insert{ID: "less", Verb: -32768}), s.Insert(insert{ID: "more", Verb: 4})} {
			require.Contains(t, s.RequireState(number, table.StateRefused), "op is not 0 to 3: ")
		}
	})
}

// TestBlocked: a row waits for another message of its id to leave, and delays no
// other row meanwhile.
func TestBlocked(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		others := map[string]*fakeMessage{
			"waits": {token: "AAAAAAAAAAAAAAAA"}, "flies": {token: "BAAAAAAAAAAAAAAA", inFlight: true}, "died": {token: "C", dead: true},
		}
		for id, m := range others {
			s.redis.live[table.Identity{Queue: "orders", Key: "", ID: id}] = m
		}
		relay, _ := s.start()
		var blocked []int64
		for id := range others {
			blocked = append(blocked, s.Insert(insert{ID: id, DueMs: s.Due(past)}))
		}
		s.Eventually("it is said", func() bool { return s.Logs.Count("outbox_blocked") == 1 })
		s.Eventually("they are known", func() bool { return relay.blocked.count() == len(others) })
		for i := range 20 {
			s.RequireStored(s.Insert(insert{ID: fmt.Sprint(i), DueMs: s.Due(soon)}))
		}
		require.Equal(t, len(others), s.Count("status = 0"))
		require.NoError(t, relay.watch(t.Context()))
		require.Equal(t, len(others), s.observer.backlog)
		require.Positive(t, s.observer.blocked)
		s.redis.with(func() { clear(s.redis.live) })
		for _, number := range blocked {
			s.RequireStored(number)
		}
	})
}

// TestLateCommit: a row whose transaction commits after those with higher
// numbers is not skipped.
func TestLateCommit(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.start()
		tx, commit := s.Begin()
		slow := s.InsertInto(tx, insert{ID: "slow", DueMs: s.Due(past)})
		cancelled := s.Insert(insert{ID: "x", DueMs: s.Due(far)})
		other, commitOther := s.Begin()
		operation := s.InsertInto(other, insert{ID: "x", Verb: table.VerbCancel})
		for i := range 20 {
			s.RequireStored(s.Insert(insert{ID: fmt.Sprint(i), DueMs: s.Due(soon)}))
		}
		commit()
		s.RequireStored(slow)
		commitOther()
		s.RequireState(operation, table.StateCancelled)
		s.RequireState(cancelled, table.StateCancelled)
	})
}

// TestLateOperation: an operation that is committed after a later one was
// applied changes nothing.
func TestLateOperation(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		s.start()
		a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
		s.RequireState(a, table.StateStored)
		tx, commit := s.Begin()
		early := s.InsertInto(tx, insert{ID: "a", Verb: table.VerbCancel})
		due := s.Due(2 * soon)
		later := s.Insert(insert{ID: "a", Verb: table.VerbReschedule, DueMs: due})
		s.RequireState(later, table.StateStored)
		commit()
		require.Equal(t, reasonLater, s.RequireState(early, table.StateSuperseded))
		s.RequireState(a, table.StateStored)
		require.Equal(t, due, s.Find("", "a").DueAt.UnixMilli())
	})
}

// TestNothingOvertakes: an operation that has changed nothing overtakes none that is
// committed after it.
func TestNothingOvertakes(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		s.start()
		tx, commit := s.Begin()
		message := s.InsertInto(tx, insert{ID: "a", DueMs: s.Due(far)})
		early := s.InsertInto(tx, insert{ID: "a", Verb: table.VerbCancel})
		blind := s.Insert(insert{ID: "a", Verb: table.VerbCancel}) // It does not see the message.
		s.RequireState(blind, table.StateUnknown)
		commit()
		s.RequireState(early, table.StateCancelled)
		s.RequireState(message, table.StateCancelled)

		message = s.Insert(insert{ID: "b", DueMs: s.Due(soon)})
		s.RequireStored(message)
		tx, commit = s.Begin()
		early = s.InsertInto(tx, insert{ID: "b", Verb: table.VerbReschedule, DueMs: s.Due(far)})
		s.RequireState(s.Insert(insert{ID: "b", Verb: table.VerbReschedule, DueMs: -1}), table.StateRefused)
		commit()
		s.RequireStored(early)
		row, _ := s.Read(message)
		require.Equal(t, early, row.Revision)
	})
}

// TestCancelOvertakes: what is committed after a later cancel was applied is told that the
// message was cancelled.
func TestCancelOvertakes(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		s.start()
		message := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
		s.RequireStored(message)
		tx, commit := s.Begin()
		moved := s.InsertInto(tx, insert{ID: "a", Verb: table.VerbReschedule, DueMs: s.Due(far)})
		cancelled := s.InsertInto(tx, insert{ID: "a", Verb: table.VerbCancel})
		s.RequireState(s.Insert(insert{ID: "a", Verb: table.VerbCancel}), table.StateCancelled)
		commit()
		require.Equal(t, reasonWasEnded, s.RequireState(moved, table.StateTooLate))
		s.RequireState(cancelled, table.StateCancelled)
		s.RequireState(message, table.StateCancelled)
		require.Nil(t, s.Find("", "a"))
	})
}

// TestRedisFull: what is scheduled waits, what is cancelled goes on.
func TestRedisFull(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		full := func(it table.Identity) error {
			if it.ID == "cancelled" {
				return nil
			}
			return fmt.Errorf("put: %w", store.ErrFull)
		}
		s.redis.with(func() { s.redis.fail = full })
		s.start()
		a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
		s.Eventually("it was said", func() bool { return s.Logs.Count("outbox_queue_away") == 1 })
		operation := s.Insert(insert{ID: "cancelled", Verb: table.VerbCancel})
		s.RequireState(operation, table.StateUnknown)
		r, _ := s.Read(a)
		require.Equal(t, table.StatePending, r.State)
		s.redis.with(func() { s.redis.fail = nil })
		s.RequireStored(a)
		s.Eventually("it was said", func() bool { return s.Logs.Count("outbox_queue_back") == 1 })
		require.Equal(t, 1, s.Logs.Count("outbox_queue_away"))
	})
}

// TestUnsure: a row of which Redis did not say whether it has it is tried again.
func TestUnsure(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.redis.with(func() {
			s.redis.fail = func(table.Identity) error { return fmt.Errorf("put: %w", store.ErrUnknown) }
		})
		s.start()
		a := s.Insert(insert{ID: "a", DueMs: s.Due(soon)})
		s.Eventually("it was said", func() bool { return s.Logs.Count("outbox_queue_away") == 1 })
		r, _ := s.Read(a)
		require.Equal(t, table.StatePending, r.State)
		s.redis.with(func() { s.redis.fail = nil })
		s.RequireStored(a)
	})
}

// TestStuckRows: rows that cannot be stored keep nobody waiting, neither those
// of their own queue nor those of another.
func TestStuckRows(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.redis.with(func() {
			s.redis.fail = func(it table.Identity) error {
				if strings.HasPrefix(it.ID, "stuck") {
					return fmt.Errorf("node is down: %w", store.ErrUnavailable)
				}
				return nil
			}
		})
		tx, commit := s.Begin()
		for i := range table.BatchRows + 100 {
			s.InsertInto(tx, insert{ID: fmt.Sprintf("stuck%d", i), DueMs: 1})
		}
		commit()
		relay, _ := s.start()
		_ = relay
		same := s.Insert(insert{ID: "same", DueMs: s.Due(soon)})
		other := s.Insert(insert{Queue: "mails", ID: "other", DueMs: s.Due(soon)})
		s.RequireStored(same)
		s.RequireStored(other)
		s.redis.with(func() { s.redis.fail = nil })
		s.Eventually("all are stored", func() bool { return s.Count("status = 0") == 0 })
		require.Len(t, s.redis.live, table.BatchRows+102)
	})
}

// TestForeignQueue: rows of a queue that this bridge does not have stay.
func TestForeignQueue(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		foreign := s.Insert(insert{Queue: "elsewhere", ID: "a", DueMs: 1})
		s.Insert(insert{Queue: "elsewhere", ID: "b", Verb: table.VerbCancel})
		s.start()
		s.RequireStored(s.Insert(insert{ID: "a", DueMs: 1}))
		s.Eventually("it is said", func() bool { return s.Logs.Count("outbox_unknown_queues") == 1 })
		require.Contains(t, s.Logs.String(), "rows=2 queues=[elsewhere]")
		r, _ := s.Read(foreign)
		require.Equal(t, table.StatePending, r.State)
	})
}

// TestMarked: what was due for longer than Redis remembers is marked.
func TestMarked(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		rows := map[string]bool{"long overdue": true, "overdue": false, "waits": false, "moved, may be out": true}
		numbers := map[string]int64{}
		tx, commit := s.Begin()
		for id := range rows {
			due := map[string]time.Duration{"long overdue": -time.Minute, "overdue": past}[id]
			if due == 0 {
				due = soon
			}
			numbers[id] = s.InsertInto(tx, insert{ID: id, DueMs: s.Due(due)})
		}
		d.ExecIn(t, tx, "UPDATE {t} SET maybe = true WHERE id = ?", numbers["moved, may be out"])
		commit()
		s.start()
		for id, want := range rows {
			s.RequireStored(numbers[id])
			require.Equal(t, want, s.live(id).marked, id)
		}
	})
}

// TestLockedRow: a row that somebody else has locked holds up no other.
func TestLockedRow(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		locked := s.Insert(insert{ID: "locked", DueMs: 1})
		operation := s.Insert(insert{ID: "operated", Verb: table.VerbCancel})
		tx, commit := s.Begin()
		d.ExecIn(t, tx, "SELECT id FROM {t} FOR UPDATE")
		s.start(func(c *Config) { c.Lanes = 1 })
		began := time.Now()
		s.RequireStored(s.Insert(insert{ID: "free", DueMs: s.Due(past)}))
		s.RequireState(s.Insert(insert{ID: "free", Verb: table.VerbCancel}), table.StateCancelled)
		require.Less(t, time.Since(began), 4*time.Second, "it waited for the lock")
		commit()
		s.RequireStored(locked)
		s.RequireState(operation, table.StateUnknown)
	})
}
