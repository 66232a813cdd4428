package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// fastPath is an outbox with a queue in Redis.
type fastPath struct {
	*database
	box    *outbox.Outbox
	client *delay.Client
	queue  *store.Queue
	rdb    *redis.Client
}

func newFastPath(t *testing.T, db *database, options ...outbox.Option) fastPath {
	t.Helper()
	address, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb, prefix := redis.NewClient(address), testenv.Name(t, "box")
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	queue := store.New(rdb, prefix, "orders")
	_, err = queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 4, Sink: message.Kafka, MaxMessage: 1000})
	require.NoError(t, err)
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
	require.NoError(t, err)
	box := outbox.New(db.dialect, append([]outbox.Option{outbox.WithRedis(rdb, prefix), outbox.WithPatience(time.Minute)}, options...)...)
	return fastPath{db, box, client, queue, rdb}
}

// inRedis reports whether Redis has a message.
func (f fastPath) inRedis(t *testing.T, id string) bool {
	t.Helper()
	_, err := f.client.Get(t.Context(), delay.Ref{ID: id})
	if !errors.Is(err, delay.ErrNotFound) {
		require.NoError(t, err)
	}
	return err == nil
}

// schedule schedules a message without a Key.
func (f fastPath) schedule(t *testing.T, tx outbox.Tx, id string, when delay.When) error {
	t.Helper()
	_, err := f.box.Schedule(t.Context(), tx, "orders", delay.Message{ID: id, Topic: "t", Body: []byte(id)}, when)
	return err
}

func TestPushIsTheRow(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		f := newFastPath(t, db)
		tx := f.begin(t)
		tracked := f.box.Track(tx)
		before, start := f.clock(t), time.Now()
		m := delay.Message{ID: "m1", Topic: "t", Headers: map[string]string{"a": "b"}, Body: []byte("body")}
		_, err := f.box.Schedule(t.Context(), tracked, "orders", m, delay.After(time.Minute))
		require.NoError(t, err)
		after, elapsed := f.clock(t), time.Since(start)
		m.Body[0], m.Headers["a"] = 'x', "x" // The caller's again.
		require.NoError(t, tx.Commit())
		require.False(t, f.inRedis(t, "m1"))
		require.NoError(t, tracked.Push(t.Context()))

		info, err := f.client.Get(t.Context(), delay.Ref{ID: "m1"})
		require.NoError(t, err)
		require.Equal(t, []byte("body"), info.Body)
		require.Equal(t, map[string]string{"a": "b"}, info.Headers)
		var token string
		var dueMs int64
		require.NoError(t, f.QueryRowContext(t.Context(), "SELECT token, due_ms FROM delay_outbox WHERE tried").Scan(&token, &dueMs))
		require.Equal(t, dueMs, info.DueAt.UnixMilli())
		require.GreaterOrEqual(t, dueMs, before+60_000)
		require.LessOrEqual(t, dueMs, after+60_000+2+elapsed.Milliseconds(), "late by what the clock's answer took, at the most")
		relay := f.queue.Rows().Put(t.Context(), []store.Row{{
			Token: token, DueAt: info.DueAt, Message: &message.Message{ID: "m1", Topic: "t", Body: []byte("body")},
		}})
		require.Equal(t, store.Mine, relay[0].Code)
		require.NoError(t, f.client.Cancel(t.Context(), delay.Ref{ID: "m1"}))
		require.NoError(t, tracked.Push(t.Context()), "a second push does nothing")
		require.False(t, f.inRedis(t, "m1"))
	})
}

// TestPushAfterALoss: what Redis has lost since the commit, the message's end perhaps
// with it, a push does not bring back (I11). The bridge knows better.
func TestPushAfterALoss(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		f := newFastPath(t, db)
		push := func(id string, meanwhile func()) error {
			tx := f.begin(t)
			tracked := f.box.Track(tx)
			require.NoError(t, f.schedule(t, tracked, id, delay.At(time.Now().Add(time.Minute))))
			require.NoError(t, tx.Commit())
			meanwhile()
			return tracked.Push(t.Context())
		}
		require.NoError(t, push("before", func() {}))
		lose := func() {
			for _, shard := range f.queue.Keys().Shards(4) {
				require.NoError(t, f.rdb.Del(t.Context(), shard.Meta, shard.Due, shard.Msg).Err())
			}
		}
		require.ErrorContains(t, push("first", lose), "the layout has changed")
		require.ErrorContains(t, push("late", func() { // Another has met the loss before.
			lose()
			for n := 0; push(fmt.Sprint("between", n), func() {}) != nil; n++ {
				require.Less(t, n, 100, "its shards are made again one by one")
			}
		}), "the layout has changed")
		require.False(t, f.inRedis(t, "late"))
	})
}

func TestPushLeavesToTheBridge(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		f := newFastPath(t, db, outbox.WithHorizon(time.Hour))
		require.NoError(t, f.schedule(t, f.database, "duplicate", delay.After(time.Minute)))
		tx := f.begin(t)
		tracked := f.box.Track(tx)
		require.ErrorIs(t, f.schedule(t, tracked, "duplicate", delay.After(time.Minute)), delay.ErrDuplicate)
		for _, id := range []string{"pushed", "cancelled", "rescheduled"} {
			require.NoError(t, f.schedule(t, tracked, id, delay.At(time.Now().Add(time.Minute))))
		}
		require.NoError(t, f.schedule(t, tracked, "far", delay.After(61*time.Minute)))
		require.NoError(t, f.box.Cancel(t.Context(), tracked, "orders", delay.Ref{ID: "cancelled"}))
		require.NoError(t, f.box.Reschedule(t.Context(), tracked, "orders", delay.Ref{ID: "rescheduled"}, delay.After(time.Hour)))
		row, err := f.box.Get(t.Context(), tracked, "orders", delay.Ref{ID: "cancelled"})
		require.NoError(t, err)
		require.Equal(t, outbox.OpCancel, row.Op)
		require.NoError(t, tx.Commit())
		require.NoError(t, tracked.Push(t.Context()))
		for _, id := range []string{"duplicate", "cancelled", "rescheduled", "far"} {
			require.False(t, f.inRedis(t, id), id)
		}
		require.True(t, f.inRedis(t, "pushed"))
		require.Equal(t, int64(2), f.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 0 AND NOT tried"))
	})
}

func TestPushComesInTimeOrNotAtAll(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		f := newFastPath(t, db)
		tx := f.begin(t)
		tracked := f.box.Track(tx)
		require.NoError(t, f.schedule(t, tracked, "m1", delay.After(time.Minute)))
		require.NoError(t, tx.Commit())
		tracked.Age(11 * time.Second)
		require.ErrorContains(t, tracked.Push(t.Context()), `push message "m1": `)
		require.False(t, f.inRedis(t, "m1"))
	})
}

func TestPushCompensates(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		errBroker := errors.New("broker is down")
		var published []string
		answer := map[string]error{}
		publish := func(_ context.Context, topic string, headers map[string]string, body []byte) error {
			published = append(published, topic+" "+string(body))
			assert.Equal(t, compensation.Headers(), headers)
			return answer[topic]
		}
		push := func(id string, options ...outbox.Option) error {
			t.Helper()
			box := outbox.New(db.dialect, append(options, outbox.WithRedis(rdb, ""))...)
			tx := db.begin(t)
			tracked := box.Track(tx)
			_, err := box.Schedule(t.Context(), tracked, "orders", delay.Message{ID: id, Key: "k", Topic: "t"}, delay.After(time.Minute))
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			return tracked.Push(t.Context())
		}
		require.ErrorContains(t, push("a"), `push message "a": `)
		require.NoError(t, push("b", outbox.WithCompensation(publish)))
		answer["mine"] = errBroker
		require.ErrorIs(t, push("c", outbox.WithCompensation(publish), outbox.WithCompensationTopic("mine")), errBroker)
		var token string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT token FROM delay_outbox WHERE message_id = 'b'").Scan(&token))
		require.Len(t, published, 2)
		require.Equal(t, fmt.Sprintf(`delay.compensation.orders {"v":1,"kind":"row","queue":"orders","token":"%s","id":"b","key":"k"}`, token), published[0])
		require.Contains(t, published[1], `mine {"v":1,`)
	})
}

func TestPushNeedsRedis(t *testing.T) {
	t.Parallel()
	box := outbox.New(outbox.PostgreSQL)
	require.ErrorContains(t, box.Track(noTx{t}).Push(t.Context()), `redis "nil"`)
	require.ErrorIs(t, outbox.New("oracle").Track(noTx{t}).Push(t.Context()), delay.ErrInvalid)
}
