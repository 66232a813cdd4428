package table_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestSettleBesideADuplicate: a transaction that has met a duplicate and stays open holds up the row of
// that message, in MySQL's unique index, and no other.
func TestSettleBesideADuplicate(t *testing.T) {
	t.Parallel()
	d := outboxtest.Open(t, schema.MySQL, testenv.MariaDB(t))
	s := outboxtest.NewScene(t, d)
	const all = 30
	var fates []table.Fate
	for i := range all {
		number := s.Insert(outboxtest.Insert{ID: fmt.Sprint("m", i), State: table.StateStored, DueMs: s.Due(outboxtest.Past)})
		row, _ := s.Read(number)
		fates = append(fates, table.Fate{Version: row.Version(), State: table.StatePublished})
	}
	producer, err := d.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = producer.Rollback() }) // An error where the test ended it.
	d.ExecIn(t, producer, "INSERT IGNORE INTO {t} (queue, message_id, topic, due_ms) VALUES (?, 'm7', 't', 5)", s.Orders)
	count := func() (by [3]int) {
		results, err := d.Ended().Settle(t.Context(), fates)
		require.NoError(t, err)
		for _, r := range results {
			by[r]++
		}
		return by
	}
	require.Equal(t, [3]int{table.FateSettled: all - 1, table.FateBusy: 1}, count())
	require.NoError(t, producer.Rollback())
	require.Equal(t, [3]int{table.FateSettled: 1, table.FateAbsent: all - 1}, count())
}
