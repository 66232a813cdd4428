package auditor

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestTwoRedis: of two bridges with one table and two Redis, one brings the rows to its Redis. The
// other takes none, moves none, and puts back nothing of what it does not have.
func TestTwoRedis(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newAuditing(t, d)
		s.relay()
		first := s.Insert(insert{ID: "first", Key: "k", DueMs: s.Due(outboxtest.Soon)})
		s.RequireStored(first)

		// Another prefix is another Redis. It is an old one: nobody has emptied it just now.
		q := store.New(s.RDB, "elsewhere", s.Orders)
		layout, err := q.Layouts().Ensure(t.Context(), storetest.Layout(2))
		require.NoError(t, err)
		for _, keys := range layout.Keys() {
			require.NoError(t, s.RDB.HSet(t.Context(), keys.Meta, "born", time.Now().Add(-time.Hour).UnixMilli()).Err())
			t.Cleanup(func() {
				require.NoError(t, s.RDB.Del(context.WithoutCancel(t.Context()), keys.Meta, keys.Due, keys.Msg).Err())
			})
		}
		theirs := outbox.Queue{Name: s.Orders, Store: outbox.NewStore(q.Rows()), Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize}
		logs := &outboxtest.Logs{}
		loggerOf := func(l *outboxtest.Logs) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
		config := relay.Config{Database: d.Database, Queues: []outbox.Queue{theirs}, Clock: q.Clock, Poll: time.Millisecond, Logger: loggerOf(logs)}
		other, err := relay.New(config)
		require.NoError(t, err)
		s.Run(other.Run)
		s.Eventually("the other relay says that the rows are not its own", func() bool { return other.State() != nil && other.State().Error() != "has not answered yet" })
		require.ErrorIs(t, other.State(), outbox.ErrOtherRedis)

		config2 := s.config
		config2.Queues, config2.Logger = []Queue{{Queue: theirs}}, loggerOf(logs)
		otherAudit, err := New(config2)
		require.NoError(t, err)
		s.Run(otherAudit.Run)

		var numbers []int64
		for i := range 50 {
			numbers = append(numbers, s.Insert(insert{ID: fmt.Sprint("later-", i), Key: "k", DueMs: s.Due(outboxtest.Soon)}))
			if i%2 == 0 {
				s.Insert(insert{ID: fmt.Sprint("later-", i), Key: "k", Verb: table.VerbReschedule, DueMs: s.Due(2 * outboxtest.Soon)})
			}
		}
		for _, number := range numbers {
			s.RequireStored(number)
		}
		s.Drained()
		s.Eventually("the other auditor has looked", func() bool { return logs.Count("outbox_audit_away") > 0 })
		for _, keys := range layout.Keys() {
			there, err := s.RDB.HKeys(t.Context(), keys.Msg).Result()
			require.NoError(t, err)
			require.Empty(t, there, "nothing comes to the other Redis")
		}
		require.Equal(t, 51, s.Count("op = 0 AND status = 1"))
		require.LessOrEqual(t, logs.Count("outbox_queue_away"), 1)
		s.Sound()
	})
}
