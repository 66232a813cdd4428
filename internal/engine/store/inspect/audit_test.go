package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestAudit: changes come back whole, the newest first, page by page, each once; and
// the queue keeps a bounded number of them.
func TestAudit(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	none, err := inspect.NewAdmin(q).AuditLog(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, none)
	for i := range 5 {
		require.NoError(t, inspect.NewAdmin(q).Audit(t.Context(), &inspect.Change{
			Who: "ann", From: "127.0.0.1", Via: inspect.ViaCommand, Instance: "b1", Action: "cancel", What: fmt.Sprint("m ", i), Key: "k", Topic: "t", Answer: "cancelled",
		}))
	}
	var all []string
	cursor := ""
	for {
		page, err := inspect.NewAdmin(q).AuditLog(t.Context(), cursor, 2)
		require.NoError(t, err)
		for _, c := range page {
			all = append(all, c.What)
			cursor = c.Cursor
			assert.WithinDuration(t, time.Now(), c.At, time.Minute)
			c.Cursor, c.At, c.What = "", time.Time{}, ""
			assert.Equal(t, inspect.Change{Who: "ann", From: "127.0.0.1", Via: inspect.ViaCommand, Instance: "b1", Action: "cancel", Key: "k", Topic: "t", Answer: "cancelled"}, c)
		}
		if len(page) < 2 {
			break
		}
	}
	assert.Equal(t, []string{"m 4", "m 3", "m 2", "m 1", "m 0"}, all)
	_, err = inspect.NewAdmin(q).AuditLog(t.Context(), "1-1 + ", 1)
	require.ErrorIs(t, err, inspect.ErrListRequest)

	for i := range 3 { // In both lists at the same time.
		for _, key := range []string{q.Keys().Audit(), q.Keys().AuditCalls()} {
			require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: fmt.Sprintf("99999999999999-%d", i), Values: []string{"what", key}}).Err())
		}
	}
	cursor = ""
	var both []string
	for range 6 {
		page, err := inspect.NewAdmin(q).AuditLog(t.Context(), cursor, 1)
		require.NoError(t, err)
		require.Len(t, page, 1)
		cursor = page[0].Cursor
		both = append(both, cursor)
	}
	assert.Equal(t, strings.Fields("99999999999999-2 99999999999999-2c 99999999999999-1 99999999999999-1c 99999999999999-0 99999999999999-0c"), both)
	page, err := inspect.NewAdmin(q).AuditLog(t.Context(), cursor, 10)
	require.NoError(t, err)
	assert.Len(t, page, 5)
	require.NoError(t, rdb.Del(t.Context(), q.Keys().Audit(), q.Keys().AuditCalls()).Err())

	pipe := rdb.Pipeline()
	for range 10_500 {
		pipe.Do(t.Context(), "xadd", q.Keys().Audit(), "*", "who", "x")
	}
	_, err = pipe.Exec(t.Context())
	require.NoError(t, err)
	old, err := inspect.NewAdmin(q).AuditLog(t.Context(), "", 1)
	require.NoError(t, err)
	assert.Equal(t, inspect.ViaAPI, old[0].Via, "earlier versions did not say it")
	require.NoError(t, inspect.NewAdmin(q).Audit(t.Context(), &inspect.Change{Who: "ann"}))
	assert.Less(t, rdb.XLen(t.Context(), q.Keys().Audit()).Val(), int64(10_200))
}
