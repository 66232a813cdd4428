package table_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// slide has each message of the table rescheduled so often, all of which has ended: a
// timeout that slides. The database has forgotten that the operations were pending.
func slide(t *testing.T, d *outboxtest.Database, times int) {
	t.Helper()
	settle := "OPTIMIZE TABLE {t}"
	if d.IsPostgres() {
		settle = "VACUUM ANALYZE {t}"
	}
	d.Exec(t, "INSERT INTO {t} (queue, message_id, op, due_ms, target) SELECT queue, message_id, 2, 5, id FROM {t}, "+d.Series(times)+" WHERE op = 0")
	d.Exec(t, "UPDATE {t} SET status = 1, finished_ms = 5 WHERE op = 2")
	d.Exec(t, settle)
}

// TestHistoryCostsNothing: what a batch reads and locks does not depend on how many
// operations on its messages have ended.
func TestHistoryCostsNothing(t *testing.T) {
	times := 2000
	if n, err := strconv.Atoi(os.Getenv("HISTORY")); err == nil {
		times = n // for figures
	}
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		var heads []int64
		for id, state := range map[string]table.State{"pending": table.StatePending, "stored": table.StateStored, "published": table.StatePublished} {
			heads = append(heads, s.Insert(outboxtest.Insert{ID: id, State: state, DueMs: s.Due(outboxtest.Past)}))
		}
		works := map[string]func(tx *table.Tx){
			"heads": func(tx *table.Tx) {
				_, err := tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, Operations: true, UntilMs: s.Due(0), Most: 10})
				require.NoError(t, err)
			},
			"screen": func(tx *table.Tx) {
				_, err := tx.LockMessages(t.Context(), heads)
				require.NoError(t, err)
			},
			"gather": func(tx *table.Tx) {
				list, err := tx.LockOperations(t.Context(), table.Work{Queue: s.Orders, Most: 10})
				require.NoError(t, err)
				require.Len(t, list, 4)
				var names []table.Identity
				for _, r := range list {
					names = append(names, r.Identity)
				}
				groups, busy, err := tx.Gather(t.Context(), names)
				require.NoError(t, err)
				require.Empty(t, busy)
				require.Len(t, groups, 3)
			},
		}
		slide(t, d, 1)
		for i, id := range []string{"pending", "stored", "published", "published"} {
			s.Insert(outboxtest.Insert{ID: id, Verb: table.VerbCancel, Target: int64(i/3) << 40}) // the last one's was deleted
		}
		measure := func() (reads, locks map[string]int) {
			reads, locks = map[string]int{}, map[string]int{}
			for name, work := range works {
				reads[name] = costOf(t, d, func(d *outboxtest.Database) {
					require.NoError(t, d.Within(t.Context(), func(tx *table.Tx) error {
						work(tx)
						locks[name] = rowLocks(t, d, tx)
						return nil
					}))
				})
			}
			reads["settle"] = costOf(t, d, func(d *outboxtest.Database) {
				fates := []table.Fate{{Version: table.Version{Identity: table.Identity{Queue: s.Orders, ID: "stored"}, Token: "other"}, State: table.StatePublished}}
				_, err := d.Ended().Settle(t.Context(), fates)
				require.NoError(t, err)
			})
			return reads, locks
		}
		readsBefore, locksBefore := measure()
		slide(t, d, times)
		reads, locks := measure()
		t.Logf("read before %v, after %d operations %v; locks %v, %v", readsBefore, 3*times, reads, locksBefore, locks)
		for name, n := range reads {
			require.Less(t, n, readsBefore[name]+100, name)
			require.Less(t, locks[name], locksBefore[name]+10, name)
		}
	})
}

// rowLocks is how many rows the transaction has locked, as far as the database tells.
func rowLocks(t *testing.T, d *outboxtest.Database, tx *table.Tx) int {
	t.Helper()
	if d.IsPostgres() {
		return 0
	}
	var id int
	require.NoError(t, d.Query(t.Context(), tx.SQL(), []any{&id}, nil, "SELECT CONNECTION_ID()"))
	var kind, name, status string
	require.NoError(t, d.Query(t.Context(), tx.SQL(), []any{&kind, &name, &status}, nil, "SHOW ENGINE INNODB STATUS"))
	found := regexp.MustCompile(fmt.Sprintf(`(\d+) row lock\(s\).*\n(?:MySQL|MariaDB) thread id %d,`, id)).FindStringSubmatch(status)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}
