package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

var first = delay.Message{
	ID: "m1", Key: "k", Topic: "topic", Headers: map[string]string{"a": `"é"`, "b": ""}, Body: []byte{0, 255, '\'', '\\'},
	Tags: []string{"sale"}, Late: delay.Late{After: time.Hour, Then: delay.LateDrop},
}

func TestScheduleWritesTheRow(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		due := time.UnixMilli(1_900_000_000_000)
		tx := db.begin(t)
		ref, err := box.Schedule(t.Context(), tx, "orders", first, delay.At(due.Add(time.Nanosecond)))
		require.NoError(t, err)
		require.Equal(t, delay.Ref{ID: "m1", Key: "k"}, ref)
		require.Zero(t, db.number(t, "SELECT count(*) FROM delay_outbox"), "before the commit")
		require.NoError(t, tx.Commit())

		var topic, headers, token string
		var body []byte
		var dueMs, loadMs int64
		require.NoError(t, db.QueryRowContext(t.Context(),
			"SELECT topic, headers, body, token, due_ms, load_ms FROM delay_outbox WHERE status = 0 AND NOT tried").
			Scan(&topic, &headers, &body, &token, &dueMs, &loadMs))
		require.Equal(t, first.Topic, topic)
		require.JSONEq(t, `{"a": "\"é\"", "b": "", "delay-tags": "sale", "delay-late": "drop 1h0m0s"}`, headers)
		require.Equal(t, first.Body, body)
		require.Regexp(t, "^~[-0-9A-Z_a-z]{15}$", token)
		require.Equal(t, due.UnixMilli()+1, dueMs, "rounded up")
		require.Equal(t, dueMs, loadMs)
	})
}

// TestRollbackLeavesNothing checks I12.
func TestRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		tx := db.begin(t)
		_, err := box.ScheduleBatch(t.Context(), tx, "orders", []delay.Request{{Message: first, When: delay.After(0)}, {Message: delay.Message{Topic: "t"}, When: delay.After(0)}})
		require.NoError(t, err)
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", delay.Ref{ID: "other"}))
		require.NoError(t, tx.Rollback())
		require.Zero(t, db.number(t, "SELECT count(*) FROM delay_outbox"))
	})
}

func TestDuplicateLeavesTheTransactionAlive(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		tx := db.begin(t)
		_, err := box.Schedule(t.Context(), tx, "orders", first, delay.After(time.Hour))
		require.NoError(t, err)
		_, err = box.Schedule(t.Context(), tx, "orders", first, delay.After(time.Minute))
		require.ErrorIs(t, err, delay.ErrDuplicate)
		otherKey := first
		otherKey.Key = ""
		_, err = box.Schedule(t.Context(), tx, "orders", otherKey, delay.After(0))
		require.NoError(t, err)
		_, err = box.Schedule(t.Context(), tx, "mails", first, delay.After(0))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, int64(3), db.number(t, "SELECT count(*) FROM delay_outbox"))

		tx = db.begin(t)
		_, err = box.Schedule(t.Context(), tx, "orders", first, delay.After(0))
		require.ErrorIs(t, err, delay.ErrDuplicate, "of another transaction")
		db.run(t, "UPDATE delay_outbox SET status = 2 WHERE queue = 'mails'")
		_, err = box.Schedule(t.Context(), tx, "mails", first, delay.After(0))
		require.NoError(t, err, "the identity of a published message is free")
		require.NoError(t, tx.Commit())
	})
}

func TestBatchSaysWhichIsWhich(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		tx := db.begin(t)
		_, err := box.Schedule(t.Context(), tx, "orders", first, delay.After(0))
		require.NoError(t, err)
		requests := []delay.Request{
			{Message: delay.Message{ID: "a", Topic: "t"}, When: delay.At(time.UnixMilli(5))},
			{Message: first, When: delay.After(0)},
			{Message: delay.Message{ID: "b"}},
			{Message: delay.Message{ID: "a", Topic: "t"}, When: delay.After(0)},
			{Message: delay.Message{Topic: "t", Body: []byte("x")}, When: delay.After(time.Second)},
		}
		results, err := box.ScheduleBatch(t.Context(), tx, "orders", requests)
		require.ErrorIs(t, err, delay.ErrDuplicate)
		require.ErrorContains(t, err, `3 of 5 messages were not written, the first is message "m1"`)
		require.Equal(t, delay.Created, results[0].Status)
		require.Equal(t, time.UnixMilli(5), results[0].DueAt)
		require.ErrorIs(t, results[1].Err, delay.ErrDuplicate)
		require.ErrorIs(t, results[2].Err, delay.ErrInvalid)
		require.ErrorIs(t, results[3].Err, delay.ErrDuplicate)
		require.NoError(t, results[4].Err)
		require.Len(t, results[4].Ref.ID, 26)
		require.True(t, results[4].DueAt.IsZero(), "only the database knows it")

		many := make([]delay.Request, 450)
		for i := range many {
			many[i].Message = delay.Message{ID: fmt.Sprintf("many-%d", i), Topic: "t", Body: make([]byte, 5000)}
			many[i].When = delay.After(0)
		}
		results, err = box.ScheduleBatch(t.Context(), tx, "orders", many)
		require.NoError(t, err)
		require.Equal(t, delay.Created, results[449].Status)
		require.NoError(t, tx.Commit())
		require.Equal(t, int64(453), db.number(t, "SELECT count(DISTINCT token) FROM delay_outbox"))
		require.Zero(t, db.number(t, "SELECT count(*) FROM delay_outbox a JOIN delay_outbox b ON a.id < b.id AND a.token > b.token"))
	})
}

// TestBatchOfDifferentRows has rows in one statement whose due times count from
// different clocks, and of which only some will be pushed.
func TestBatchOfDifferentRows(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		begin, soon := db.clock(t), time.UnixMilli(time.Now().Add(time.Minute).UnixMilli())
		kinds := []delay.When{delay.At(soon), delay.At(soon), delay.After(time.Hour), delay.At(soon), delay.After(time.Hour), delay.After(time.Hour)}
		requests := func(prefix string, kinds ...delay.When) []delay.Request {
			list := make([]delay.Request, len(kinds))
			for i, when := range kinds {
				list[i] = delay.Request{Message: delay.Message{ID: fmt.Sprint(prefix, i), Topic: "t"}, When: when}
			}
			return list
		}
		_, err := outbox.New(db.dialect).ScheduleBatch(t.Context(), db, "orders", requests("due", kinds...))
		require.NoError(t, err)
		absolute := fmt.Sprintf("message_id IN ('due0', 'due1', 'due3') AND due_ms = %d", soon.UnixMilli())
		relative := fmt.Sprintf("message_id IN ('due2', 'due4', 'due5') AND due_ms BETWEEN %d AND %d",
			begin+time.Hour.Milliseconds(), db.clock(t)+1+time.Hour.Milliseconds())
		require.Equal(t, int64(3), db.number(t, "SELECT count(*) FROM delay_outbox WHERE "+absolute))
		require.Equal(t, int64(3), db.number(t, "SELECT count(*) FROM delay_outbox WHERE "+relative))

		f, far := newFastPath(t, db), delay.At(soon.Add(24*time.Hour))
		tracked := f.box.Track(db)
		_, err = f.box.ScheduleBatch(t.Context(), tracked, "orders", requests("tried", far, delay.At(soon), far, delay.At(soon)))
		require.NoError(t, err)
		require.Equal(t, int64(2), db.number(t, "SELECT count(*) FROM delay_outbox WHERE message_id IN ('tried1', 'tried3') AND tried"))
		require.Equal(t, int64(2), db.number(t, "SELECT count(*) FROM delay_outbox WHERE message_id IN ('tried0', 'tried2') AND NOT tried"))
	})
}

func TestLargestMessage(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		tx := db.begin(t)
		m := delay.Message{ID: strings.Repeat("ä", 127), Key: strings.Repeat("k", 255), Topic: strings.Repeat("t", 255)}
		m.Body = make([]byte, 960<<10-254-255-255)
		_, err := outbox.New(db.dialect).Schedule(t.Context(), tx, strings.Repeat("q", 63), m, delay.After(0))
		require.NoError(t, err)
		m.Body = append(m.Body, 0)
		_, err = outbox.New(db.dialect).Schedule(t.Context(), tx, "q", m, delay.After(0))
		require.ErrorContains(t, err, "allowed are 983040")
		_, err = outbox.New(db.dialect, outbox.WithMaxSize(1<<20)).Schedule(t.Context(), tx, "q", m, delay.After(0))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	})
}

func TestDueTimes(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		tx := db.begin(t)
		for id, when := range map[string]delay.When{
			"now": delay.After(0), "past": delay.After(-time.Hour), "rounded": delay.After(time.Nanosecond), "hour": delay.After(time.Hour),
			"far": delay.After(250 * 365 * 24 * time.Hour), "last": delay.At(time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)),
		} {
			before := db.clock(t)
			_, err := box.Schedule(t.Context(), tx, "orders", delay.Message{ID: id, Topic: "t"}, when)
			require.NoError(t, err, id)
			after := db.clock(t) + 1
			row, err := box.Get(t.Context(), tx, "orders", delay.Ref{ID: id})
			require.NoError(t, err)
			if at, absolute := when.Instant(); absolute {
				require.True(t, row.DueAt.Equal(at))
				continue
			}
			d := max((when.Delay() + time.Millisecond - 1).Milliseconds(), 0)
			require.GreaterOrEqual(t, row.DueAt.UnixMilli(), before+d, id)
			require.LessOrEqual(t, row.DueAt.UnixMilli(), after+d+1, id)
		}
		require.NoError(t, tx.Commit())
	})
}

// TestTimeZones has sessions, and a process, with odd ideas of what time it is.
func TestTimeZones(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		tx := db.begin(t)
		zone := "SET TIME ZONE 'America/St_Johns'"
		if db.dialect == outbox.MySQL {
			zone = "SET time_zone = '-09:30'"
		}
		_, err := tx.ExecContext(t.Context(), zone)
		require.NoError(t, err)
		before := db.clock(t)
		_, err = box.Schedule(t.Context(), tx, "orders", first, delay.After(time.Minute))
		require.NoError(t, err)
		at := time.Unix(1_800_000_000, 0).In(time.FixedZone("odd", -12345))
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", delay.Ref{ID: "at"}, delay.At(at)))
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", delay.Ref{ID: "after"}, delay.After(time.Minute)))
		require.NoError(t, tx.Commit())
		after := db.clock(t) + 2
		require.Equal(t, int64(2), db.number(t, fmt.Sprintf(
			"SELECT count(*) FROM delay_outbox WHERE due_ms - 60000 BETWEEN %d AND %d", before, after)))
		require.Equal(t, int64(1_800_000_000_000), db.number(t, "SELECT due_ms FROM delay_outbox WHERE message_id = 'at'"))
		require.Equal(t, int64(3), db.number(t, fmt.Sprintf(
			"SELECT count(*) FROM delay_outbox WHERE created_ms BETWEEN %d AND %d", before, after)))
	})
}

// TestSpread moves the row by its identity, and again by a reschedule.
func TestSpread(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box, at := outbox.New(db.dialect), time.UnixMilli(1_900_000_000_000)
		want := at.Add(message.Spread(first.Key, first.ID, time.Hour)).UnixMilli()
		tx := db.begin(t)
		ref, err := box.Schedule(t.Context(), tx, "orders", first, delay.At(at).Spread(time.Hour))
		require.NoError(t, err)
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", ref, delay.At(at).Spread(time.Hour)))
		require.NoError(t, tx.Commit())
		require.EqualValues(t, 2, db.number(t, fmt.Sprint("SELECT count(*) FROM delay_outbox WHERE due_ms = ", want)))
	})
}
