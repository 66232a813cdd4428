package table_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestNew: what was written since the floor, and what the horizon has reached since
// then; and by these numbers it is locked.
func TestNew(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		put := func(id string, adjust outboxtest.Insert) int64 {
			adjust.ID = id
			return s.Insert(adjust)
		}
		before := put("before", outboxtest.Insert{DueMs: 10})
		put("taken", outboxtest.Insert{DueMs: 150, State: table.StateStored})
		reached := put("reached", outboxtest.Insert{DueMs: 150})
		put("not yet", outboxtest.Insert{DueMs: 201})
		floor, err := d.Pending().Last(t.Context())
		require.NoError(t, err)
		written := put("written", outboxtest.Insert{DueMs: 5})
		both := put("both", outboxtest.Insert{DueMs: 200})
		put("far", outboxtest.Insert{DueMs: 300})
		put("done", outboxtest.Insert{DueMs: 5, State: table.StatePublished})
		cancel := put("written", outboxtest.Insert{Verb: table.VerbCancel})
		other := put("other", outboxtest.Insert{Queue: "mails", DueMs: 5})
		newest := put("foreign", outboxtest.Insert{Queue: "nobodys", DueMs: 5})

		queues := []string{s.Orders, "mails", "empty"}
		found, highest, err := d.Pending().New(t.Context(), queues, table.Floor{Number: floor, UntilMs: 100}, 200)
		require.NoError(t, err)
		require.Equal(t, newest, highest)
		require.Equal(t, map[string]table.PendingWork{
			s.Orders: {NewOperations: []int64{cancel}, NewHeads: []int64{reached, written, both}},
			"mails":  {NewHeads: []int64{other}},
		}, found)
		require.NoError(t, d.Within(t.Context(), func(tx *table.Tx) error {
			numbers := []int64{reached, written, both, cancel, newest + 1}
			heads, err := tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, Numbers: numbers, Operations: true, Most: 10})
			require.NoError(t, err)
			require.Equal(t, []int64{reached, both}, numbersOf(heads), "what has an operation is left to it")
			heads, err = tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, Numbers: numbers, Blocked: []int64{both}, Most: 1})
			require.NoError(t, err)
			require.Equal(t, []int64{reached}, numbersOf(heads))
			heads, err = tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, UntilMs: 200, Operations: true, Most: 10})
			require.NoError(t, err)
			require.Equal(t, []int64{before, reached, both}, numbersOf(heads), "as far as the horizon, and no further")
			heads, err = tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, UntilMs: 200, Most: 10})
			require.NoError(t, err)
			require.Equal(t, []int64{before, reached, both}, numbersOf(heads), "nor what has an operation that came since the look")
			operations, err := tx.LockOperations(t.Context(), table.Work{Queue: s.Orders, Numbers: numbers, Most: 10})
			require.NoError(t, err)
			require.Equal(t, []int64{cancel}, numbersOf(operations))
			return nil
		}))
		found, highest, err = d.Pending().New(t.Context(), queues, table.Floor{Number: newest, UntilMs: 200}, 200)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, newest, highest)
	})
}

func numbersOf(rows []*table.Row) (numbers []int64) {
	for _, r := range rows {
		numbers = append(numbers, r.Number)
	}
	return numbers
}

// TestPurgeGoesOn: a batch begins where the one before has ended.
func TestPurgeGoesOn(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		s.InsertMany(1500, outboxtest.Soon)
		d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = id")
		before := s.Insert(outboxtest.Insert{ID: "before", State: table.StatePublished})
		lastMs, more, err := d.Ended().Purge(t.Context(), time.Minute, 0)
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, 500, s.Count("status = 2 AND finished_ms > 0"))
		require.Zero(t, s.Count(fmt.Sprintf("finished_ms <= %d", lastMs)))
		d.Exec(t, "UPDATE {t} SET finished_ms = 0 WHERE id = ?", before)
		_, more, err = d.Ended().Purge(t.Context(), time.Minute, lastMs)
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, "published", s.State(before), "it is left to the next time")
		require.Zero(t, s.Count("finished_ms > 0"))
	})
}

// TestPurgeOperationsBefore: an operation that ended at the very instant of the limit is young enough to stay.
func TestPurgeOperationsBefore(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		for id, finishedMs := range map[string]int64{"before": 999, "at": 1000} {
			number := s.Insert(outboxtest.Insert{ID: id, Verb: table.VerbCancel, State: table.StateTooLate})
			d.Exec(t, "UPDATE {t} SET finished_ms = ? WHERE id = ?", finishedMs, number)
		}
		_, _, err := d.Ended().PurgeOperations(t.Context(), 0, 1000)
		require.NoError(t, err)
		require.Zero(t, s.Count("message_id = 'before'"))
		require.Equal(t, 1, s.Count("message_id = 'at'"))
	})
}

// TestRedriveBesideALife: a refused row is not redriven while another message of its identity lives, also one that is older.
func TestRedriveBesideALife(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		older := s.Insert(outboxtest.Insert{ID: "a", State: table.StateStored, DueMs: 1})
		refused := s.Insert(outboxtest.Insert{ID: "a", State: table.StateRefused, DueMs: 1})
		redrive := func() table.Tally {
			tally, err := d.Refused().Redrive(t.Context(), []int64{refused}, true)
			require.NoError(t, err)
			return tally
		}
		require.Equal(t, table.Tally{Overtaken: 1}, redrive())
		d.Exec(t, "UPDATE {t} SET status = 2 WHERE id = ?", older)
		require.Equal(t, table.Tally{Redriven: 1}, redrive())
	})
}

// TestRelayedRowsUnderASnapshot: while somebody holds a snapshot, a look at everything
// walks over all that was relayed since then, and what asks for new rows over none of it.
func TestRelayedRowsUnderASnapshot(t *testing.T) {
	outboxtest.OnBoth(t, relayedUnderASnapshot)
}

func relayedUnderASnapshot(t *testing.T, d *outboxtest.Database) {
	s := outboxtest.NewScene(t, d)
	const relayed = 40_000
	fill := func(queue string, firstMs int64) {
		d.Exec(t, fmt.Sprintf("INSERT INTO {t} (queue, message_id, topic, due_ms) SELECT ?, CONCAT('id-', n, '-%[1]d'), 't', %[1]d + n FROM ", firstMs)+d.Series(relayed), queue)
	}
	const far = 1_000_000_000
	fill("nobodys", 0)
	fill(s.Orders, far)
	d.Analyze(t)
	snapshot, err := d.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, snapshot.Rollback()) }()
	_, err = snapshot.ExecContext(t.Context(), d.Text("SELECT 1 FROM {t} LIMIT 1"))
	require.NoError(t, err)
	fill(s.Orders, 0)
	d.Exec(t, "UPDATE {t} SET status = 1 WHERE queue = ? AND load_ms < ?", s.Orders, far)
	d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = 1 WHERE queue = ? AND load_ms < ?", s.Orders, far)
	floor, err := d.Pending().Last(t.Context())
	require.NoError(t, err)
	var numbers []int64
	for i := range 5 {
		numbers = append(numbers, s.Insert(outboxtest.Insert{ID: fmt.Sprint("new-", i), DueMs: relayed + 1}))
	}
	limit := relayed / 100 // PostgreSQL looks at the row of each dead entry of an index,
	if !d.IsPostgres() {
		limit = relayed / 800 // MariaDB walks over them alone.
	}
	work := table.Work{Queue: s.Orders, Operations: true, UntilMs: relayed + 1, Most: 2000}
	later, byNumber := work, work
	later.After, byNumber.Numbers = table.Cursor{Ms: relayed + 1}, numbers
	queues := []string{s.Orders, "mails"}
	for name, c := range map[string]struct {
		statement
		walks bool
	}{
		"everything":            {d.QueryWaiting(queues), true},
		"all messages":          {d.QueryHeads(work), true},
		"messages from there":   {d.QueryHeads(later), false},
		"new":                   {d.QueryNew(queues, table.Floor{Number: floor, UntilMs: relayed}, relayed+1), false},
		"new after a while":     {d.QueryNew(queues, table.Floor{Number: numbers[0], UntilMs: relayed + 1}, relayed+100), false},
		"messages by number":    {d.QueryHeads(byNumber), false},
		"operations by number":  {d.QueryOperations(byNumber), false},
		"stored, from the last": {d.QueryStored("id", s.Orders, table.Cursor{Ms: relayed}, table.MaxDueMs, 1000), false},
	} {
		require.NoError(t, d.Within(t.Context(), func(tx *table.Tx) error {
			var on outboxtest.Runner = d.SQL
			text, args := c.Statement()
			if strings.Contains(text, "FOR UPDATE") {
				on = tx.SQL()
			}
			verb := "EXPLAIN (ANALYZE, BUFFERS) "
			if !d.IsPostgres() {
				verb = "/*M! ANALYZE */ /*!80013 EXPLAIN */ FORMAT=JSON " // MySQL counts no pages, see blocks.
			}
			plan := explain(t, on, verb+text, args...)
			looked := blocks(t, plan)
			t.Logf("%-22s %6d blocks", name, looked)
			if c.walks {
				require.Greater(t, looked, limit, "%s: %s", name, plan)
			} else {
				require.Less(t, looked, limit, "%s: %s", name, plan)
			}
			return nil
		}))
	}
}

// blocks is how many a statement has looked at. PostgreSQL says it in its first line, MariaDB
// at each table.
func blocks(t *testing.T, plan string) (n int) {
	t.Helper()
	sum := func(counts []string) {
		for _, count := range counts {
			blocks, _ := strconv.Atoi(count) // Nothing was read.
			n += blocks
		}
	}
	if found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan); found != nil {
		sum(found[1:])
		return n
	}
	if !strings.Contains(plan, "r_engine_stats") {
		t.Skip("this server does not tell how many pages a statement looks at")
	}
	for _, found := range regexp.MustCompile(`"pages_accessed": (\d+)`).FindAllStringSubmatch(plan, -1) {
		sum(found[1:])
	}
	return n
}
