package outbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/store"
)

const soon = time.Minute

func (s *scene) due(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

func (s *scene) live(id string) *fakeMessage { return s.redis.get(identity{"orders", "", id}) }

func TestLoad(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		due := s.due(soon)
		good := s.insert(insert{key: "k", id: "good", dueMs: due, headers: `{"a": "b"}`, body: "hello\x00\xff"})
		large := s.insert(insert{id: "large", dueMs: s.due(-soon), body: strings.Repeat("x", 900<<10)})
		far := s.insert(insert{id: "far", dueMs: s.due(2 * time.Hour)})
		plain := s.insert(insert{queue: "mails", id: "plain", dueMs: 0})
		s.start()
		s.requireStored(good)
		s.requireStored(large)
		s.requireStored(plain)
		m := s.redis.get(identity{"orders", "k", "good"})
		require.Equal(t, "hello\x00\xff", string(m.message.Body))
		require.Equal(t, map[string]string{"a": "b"}, m.message.Headers)
		require.Equal(t, "topic", m.message.Topic)
		require.Equal(t, due, m.due.UnixMilli())
		require.True(t, strings.HasPrefix(m.token, "~"))
		require.False(t, m.marked)
		require.Len(t, s.live("large").message.Body, 900<<10)
		require.Empty(t, s.redis.get(identity{"mails", "", "plain"}).message.Body)
		r, _ := s.read(far)
		require.Equal(t, statePending, r.state, "beyond the horizon")
		require.Nil(t, s.live("far"))
	})
}

// TestStored: a row whose message Redis has lives on, and holds its identity.
func TestStored(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		s.start()
		a := s.insert(insert{id: "a", dueMs: s.due(soon)})
		s.requireStored(a)
		require.Equal(t, 1, s.count("status = 1 AND finished_ms IS NULL"))
		s.eventually("it is counted", func() bool { return s.observer.count("orders schedule stored") == 1 })
		_, err := s.tryInsert(t.Context(), d.db, insert{id: "a", dueMs: 1})
		require.Error(t, err, "it holds its identity")
	})
}

// TestPoison: rows that can never be stored go aside alone, with their reasons.
func TestPoison(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		bad := map[string]int64{
			"token":   s.insert(insert{id: "token", dueMs: 1, token: "~short"}),
			"no row":  s.insert(insert{id: "no row", dueMs: 1, token: "~~34567890123456"}),
			"tilde":   s.insert(insert{id: "tilde", dueMs: 1, token: "0123456789abcdef"}),
			"topic":   s.insert(insert{id: "topic", dueMs: 1, topic: "a b"}),
			"headers": s.insert(insert{id: "headers", dueMs: 1, headers: `["a"]`}),
			"number":  s.insert(insert{id: "number", dueMs: 1, headers: `{"a": 1}`}),
			"header":  s.insert(insert{id: "header", dueMs: 1, headers: `{"delay-x": "1"}`}),
			"early":   s.insert(insert{id: "early", dueMs: -1}),
			"id":      s.insert(insert{id: " ", dueMs: 1}),
			"size":    s.insert(insert{id: "size", dueMs: 1, body: strings.Repeat("x", 1<<20)}),
		}
		good := s.insert(insert{id: "good", dueMs: 2, headers: "null"})
		s.start()
		s.requireStored(good)
		for name, number := range bad {
			require.NotEmpty(t, s.requireState(number, stateRefused), name)
		}
		s.eventually("they are counted", func() bool { return s.observer.count("orders schedule refused") == len(bad) })
		s.eventually("it was said", func() bool { return s.logs.count("outbox_refused") > 0 })
		require.Equal(t, 1, s.logs.count("outbox_refused"), "once a minute")
		require.Len(t, s.redis.live, 1)
	})
}

// TestBlocked: a row waits for another message of its id to leave, and delays no
// other row meanwhile.
func TestBlocked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		others := map[string]*fakeMessage{
			"waits": {token: "AAAAAAAAAAAAAAAA"}, "flies": {token: "BAAAAAAAAAAAAAAA", inFlight: true}, "died": {token: "C", dead: true},
		}
		for id, m := range others {
			s.redis.live[identity{"orders", "", id}] = m
		}
		relay, _ := s.start()
		var blocked []int64
		for id := range others {
			blocked = append(blocked, s.insert(insert{id: id, dueMs: s.due(past)}))
		}
		s.eventually("it is said", func() bool { return s.logs.count("outbox_blocked") == 1 })
		s.eventually("they are known", func() bool { return relay.blocked.count() == len(others) })
		for i := range 20 {
			s.requireStored(s.insert(insert{id: fmt.Sprint(i), dueMs: s.due(soon)}))
		}
		require.Equal(t, len(others), s.count("status = 0"))
		require.NoError(t, relay.watch(t.Context()))
		require.Equal(t, len(others), s.observer.backlog)
		require.Positive(t, s.observer.blocked)
		s.redis.with(func() { clear(s.redis.live) })
		for _, number := range blocked {
			s.requireStored(number)
		}
	})
}

// TestLateCommit: a row whose transaction commits after those with higher
// numbers is not skipped.
func TestLateCommit(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		s.start()
		tx, commit := s.begin()
		slow := s.insertInto(tx, insert{id: "slow", dueMs: s.due(past)})
		cancelled := s.insert(insert{id: "x", dueMs: s.due(far)})
		other, commitOther := s.begin()
		operation := s.insertInto(other, insert{id: "x", verb: verbCancel})
		for i := range 20 {
			s.requireStored(s.insert(insert{id: fmt.Sprint(i), dueMs: s.due(soon)}))
		}
		commit()
		s.requireStored(slow)
		commitOther()
		s.requireState(operation, stateCancelled)
		s.requireState(cancelled, stateCancelled)
	})
}

// TestLateOperation: an operation that is committed after a later one was
// applied changes nothing.
func TestLateOperation(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReal(t, d)
		s.start()
		a := s.insert(insert{id: "a", dueMs: s.due(soon)})
		s.requireState(a, stateStored)
		tx, commit := s.begin()
		early := s.insertInto(tx, insert{id: "a", verb: verbCancel})
		due := s.due(2 * soon)
		later := s.insert(insert{id: "a", verb: verbReschedule, dueMs: due})
		s.requireState(later, stateStored)
		commit()
		require.Equal(t, reasonLater, s.requireState(early, stateSuperseded))
		s.requireState(a, stateStored)
		require.Equal(t, due, s.find("", "a").DueAt.UnixMilli())
	})
}

// TestRedisFull: what is scheduled waits, what is cancelled goes on.
func TestRedisFull(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		full := func(it identity) error {
			if it.id == "cancelled" {
				return nil
			}
			return fmt.Errorf("put: %w", store.ErrFull)
		}
		s.redis.with(func() { s.redis.fail = full })
		s.start()
		a := s.insert(insert{id: "a", dueMs: s.due(soon)})
		s.eventually("it was said", func() bool { return s.logs.count("outbox_queue_away") == 1 })
		operation := s.insert(insert{id: "cancelled", verb: verbCancel})
		s.requireState(operation, stateUnknown)
		r, _ := s.read(a)
		require.Equal(t, statePending, r.state)
		s.redis.with(func() { s.redis.fail = nil })
		s.requireStored(a)
		s.eventually("it was said", func() bool { return s.logs.count("outbox_queue_back") == 1 })
		require.Equal(t, 1, s.logs.count("outbox_queue_away"))
	})
}

// TestUnsure: a row of which Redis did not say whether it has it is tried again.
func TestUnsure(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		s.redis.with(func() {
			s.redis.fail = func(identity) error { return fmt.Errorf("put: %w", store.ErrUnknown) }
		})
		s.start()
		a := s.insert(insert{id: "a", dueMs: s.due(soon)})
		s.eventually("it was said", func() bool { return s.logs.count("outbox_queue_away") == 1 })
		r, _ := s.read(a)
		require.Equal(t, statePending, r.state)
		s.redis.with(func() { s.redis.fail = nil })
		s.requireStored(a)
	})
}

// TestStuckRows: rows that cannot be stored keep nobody waiting, neither those
// of their own queue nor those of another.
func TestStuckRows(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		s.redis.with(func() {
			s.redis.fail = func(it identity) error {
				if strings.HasPrefix(it.id, "stuck") {
					return fmt.Errorf("node is down: %w", store.ErrUnavailable)
				}
				return nil
			}
		})
		tx, commit := s.begin()
		for i := range batchRows + 100 {
			s.insertInto(tx, insert{id: fmt.Sprintf("stuck%d", i), dueMs: 1})
		}
		commit()
		relay, _ := s.start()
		_ = relay
		same := s.insert(insert{id: "same", dueMs: s.due(soon)})
		other := s.insert(insert{queue: "mails", id: "other", dueMs: s.due(soon)})
		s.requireStored(same)
		s.requireStored(other)
		s.redis.with(func() { s.redis.fail = nil })
		s.eventually("all are stored", func() bool { return s.count("status = 0") == 0 })
		require.Len(t, s.redis.live, batchRows+102)
	})
}

// TestForeignQueue: rows of a queue that this bridge does not have stay.
func TestForeignQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		foreign := s.insert(insert{queue: "elsewhere", id: "a", dueMs: 1})
		s.insert(insert{queue: "elsewhere", id: "b", verb: verbCancel})
		s.start()
		s.requireStored(s.insert(insert{id: "a", dueMs: 1}))
		s.eventually("it is said", func() bool { return s.logs.count("outbox_unknown_queues") == 1 })
		require.Contains(t, s.logs.String(), "rows=2 queues=[elsewhere]")
		r, _ := s.read(foreign)
		require.Equal(t, statePending, r.state)
	})
}

// TestMarked: what was due for longer than Redis remembers is marked.
func TestMarked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		rows := map[string]bool{"long overdue": true, "overdue": false, "waits": false, "moved, may be out": true}
		numbers := map[string]int64{}
		tx, commit := s.begin()
		for id := range rows {
			due := map[string]time.Duration{"long overdue": -time.Minute, "overdue": past}[id]
			if due == 0 {
				due = soon
			}
			numbers[id] = s.insertInto(tx, insert{id: id, dueMs: s.due(due)})
		}
		_, err := d.query("").add("UPDATE {t} SET maybe = true WHERE id = ?", numbers["moved, may be out"]).exec(t.Context(), tx)
		require.NoError(t, err)
		commit()
		s.start()
		for id, want := range rows {
			s.requireStored(numbers[id])
			require.Equal(t, want, s.live(id).marked, id)
		}
	})
}

// TestLockedRow: a row that somebody else has locked holds up no other.
func TestLockedRow(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		locked := s.insert(insert{id: "locked", dueMs: 1})
		operation := s.insert(insert{id: "operated", verb: verbCancel})
		tx, commit := s.begin()
		_, err := d.query("SELECT id FROM {t} FOR UPDATE").exec(t.Context(), tx)
		require.NoError(t, err)
		s.start(func(c *Config) { c.Lanes = 1 })
		began := time.Now()
		s.requireStored(s.insert(insert{id: "free", dueMs: s.due(past)}))
		s.requireState(s.insert(insert{id: "free", verb: verbCancel}), stateCancelled)
		require.Less(t, time.Since(began), 4*time.Second, "it waited for the lock")
		commit()
		s.requireStored(locked)
		s.requireState(operation, stateUnknown)
	})
}
