package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/importer"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// patience is for slow machines.
const patience = 3 * time.Minute

// world is a Redis with a queue of ours, and with asynq or BullMQ beside it.
type world struct {
	t      testing.TB
	rdb    *redis.Client
	client *delay.Client
	queue  *operate.Queue
}

func newWorld(t testing.TB) *world {
	t.Helper()
	server, err := service.StartRedis(t.Context())
	require.NoError(t, err)
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	require.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", 2))
	client, err := delay.NewClient(rdb, "orders", delay.WithConflict(delay.Keep))
	require.NoError(t, err)
	return &world{t: t, rdb: rdb, client: client, queue: &operate.Queue{
		Name: "orders", Store: store.New(rdb, "delay", "orders"), Clients: map[delay.Conflict]*delay.Client{delay.Reject: client, delay.Keep: client},
	}}
}

func (w *world) options(origin importer.Origin) importer.Options {
	return importer.Options{Queue: w.queue, Origin: origin, Rules: importer.Rules{
		Topics: map[string]string{"order:timeout": "order.timeout"}, Sink: message.NATS, MaxMessage: message.DefaultMaxSize,
	}}
}

func (w *world) asynq() importer.Origin {
	return importer.Asynq(w.rdb, "default", false, message.DefaultMaxSize)
}

// isHere reports whether our queue has the message.
func (w *world) isHere(id string) bool {
	w.t.Helper()
	_, err := w.client.Get(w.t.Context(), delay.Ref{ID: id})
	if !errors.Is(err, delay.ErrNotFound) {
		require.NoError(w.t, err)
	}
	return err == nil
}

var errCrash = errors.New("crash")

// TestImportAsynq: what asynq's client has scheduled arrives as it was.
func TestImportAsynq(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, inspector := asynq.NewClientFromRedisClient(w.rdb), asynq.NewInspectorFromRedisClient(w.rdb)
	due := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	const many = 700
	for i := range many {
		task := asynq.NewTaskWithHeaders("order:timeout", []byte(`{"order":42}`), map[string]string{"trace": strconv.Itoa(i)})
		_, err := old.EnqueueContext(t.Context(), task, asynq.ProcessAt(due), asynq.TaskID("order-"+strconv.Itoa(i)), asynq.MaxRetry(3), asynq.Deadline(due.Add(time.Hour)))
		require.NoError(t, err)
	}
	for _, option := range []asynq.Option{asynq.Unique(time.Hour), asynq.Retention(time.Hour), asynq.Group("g")} {
		_, err := old.EnqueueContext(t.Context(), asynq.NewTask("order:timeout", []byte(fmt.Sprint(option))), asynq.ProcessAt(due), option)
		require.NoError(t, err)
	}
	r, err := importer.New(w.options(w.asynq())).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, many, r.Moved)
	assert.EqualValues(t, many, r.Found)
	assert.Zero(t, r.Unaccounted())
	for _, reason := range []importer.Reason{importer.NeedsUnique, importer.NeedsRetention, importer.NeedsGroup} {
		if assert.Contains(t, r.Left, reason) {
			assert.EqualValues(t, 1, r.Left[reason].Count)
		}
	}
	info, err := w.client.Get(t.Context(), delay.Ref{ID: "order-7"})
	require.NoError(t, err)
	assert.Equal(t, due, info.DueAt.Local())
	assert.JSONEq(t, `{"order":42}`, string(info.Body))
	assert.Equal(t, map[string]string{"trace": "7", "asynq-type": "order:timeout", "asynq-deadline": due.Add(time.Hour).UTC().Format(time.RFC3339)}, info.Headers)
	left, err := inspector.GetQueueInfo("default")
	require.NoError(t, err)
	assert.Equal(t, 3, left.Scheduled)

	o := w.options(w.asynq())
	o.Rules.GiveUp = []importer.Reason{importer.NeedsUnique, importer.NeedsRetention}
	r, err = importer.New(o).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, r.Moved)
	_, err = old.EnqueueContext(t.Context(), asynq.NewTask("order:timeout", []byte(fmt.Sprint(asynq.Unique(time.Hour)))), asynq.Unique(time.Hour))
	assert.NoError(t, err, "the lock of the moved task is gone")
}

// TestMoveKeepsCancels: at whatever step asynq cancels a task, and whether or not the import is broken off there,
// what it says is gone waits in neither.
func TestMoveKeepsCancels(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"held", "scheduled", "removed", "cancelled"} {
		for _, isCrash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", step, isCrash), func(t *testing.T) {
				t.Parallel()
				keepCancels(t, step, isCrash)
			})
		}
	}
}

func keepCancels(t *testing.T, step string, isCrash bool) {
	w := newWorld(t)
	old, inspector := asynq.NewClientFromRedisClient(w.rdb), asynq.NewInspectorFromRedisClient(w.rdb)
	const many = 60
	for i := range many {
		task := asynq.NewTask("order:timeout", []byte(`{"order":42}`))
		_, err := old.EnqueueContext(t.Context(), task, asynq.ProcessIn(24*time.Hour), asynq.TaskID("order-"+strconv.Itoa(i)))
		require.NoError(t, err)
	}
	// One is cancelled early, so that there is a step "cancelled".
	o := w.options(w.asynq())
	o.Step = func(name string) error {
		if name == "held" {
			require.NoError(t, inspector.DeleteTask("default", "order-0"))
		}
		if name != step {
			return nil
		}
		for i := 1; i < many; i += 3 {
			require.NoError(t, cancelBoth(t.Context(), inspector, w.client, "default", delay.Ref{ID: "order-" + strconv.Itoa(i)}))
		}
		for i := 2; i < many; i += 3 { // By a producer that knows asynq only.
			err := inspector.DeleteTask("default", "order-"+strconv.Itoa(i))
			if name == "held" || name == "scheduled" {
				require.NoError(t, err, "it is held, and asynq can cancel it")
			} else {
				require.ErrorIs(t, err, asynq.ErrTaskNotFound)
			}
		}
		if isCrash {
			return errCrash
		}
		return nil
	}
	_, err := importer.New(o).Run(t.Context())
	if isCrash {
		require.ErrorIs(t, err, errCrash)
		_, err = importer.New(w.options(w.asynq())).Run(t.Context())
	}
	require.NoError(t, err)
	for i := range many {
		id := "order-" + strconv.Itoa(i)
		isCancelled := i == 0 || i%3 == 1 || i%3 == 2 && (step == "held" || step == "scheduled")
		assert.Equal(t, !isCancelled, w.isHere(id), id)
		_, err := inspector.GetTaskInfo("default", id)
		assert.ErrorIs(t, err, asynq.ErrTaskNotFound)
	}
	keys, err := w.rdb.Keys(t.Context(), "asynq:{default}:*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

// TestImportRunThere: a task that is in hand, and that somebody has asynq run, stays with asynq.
func TestImportRunThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, inspector := asynq.NewClientFromRedisClient(w.rdb), asynq.NewInspectorFromRedisClient(w.rdb)
	for _, id := range []string{"a", "b"} {
		_, err := old.EnqueueContext(t.Context(), asynq.NewTask("order:timeout", nil), asynq.ProcessIn(time.Hour), asynq.TaskID(id))
		require.NoError(t, err)
	}
	o := w.options(w.asynq())
	o.Step = func(name string) error {
		if name == "scheduled" {
			return inspector.RunTask("default", "a")
		}
		return nil
	}
	r, err := importer.New(o).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Moved)
	assert.EqualValues(t, 1, r.Cancelled)
	assert.False(t, w.isHere("a"))
	assert.True(t, w.isHere("b"))
	info, err := inspector.GetTaskInfo("default", "a")
	require.NoError(t, err)
	assert.Equal(t, asynq.TaskStatePending, info.State)
}

// TestImportBesideHandlers: while asynq's handlers take tasks that fall due, each task is handled there or is here, and never both.
func TestImportBesideHandlers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := asynq.NewClientFromRedisClient(w.rdb)
	const many = 3000
	for i := range many {
		task := asynq.NewTask("order:timeout", []byte(`{}`))
		_, err := old.EnqueueContext(t.Context(), task, asynq.ProcessIn(time.Duration(i%6)*time.Second), asynq.TaskID("order-"+strconv.Itoa(i)))
		require.NoError(t, err)
	}
	var mu sync.Mutex
	handled := map[string]int{}
	server := asynq.NewServerFromRedisClient(w.rdb, asynq.Config{Concurrency: 4, LogLevel: asynq.ErrorLevel, DelayedTaskCheckInterval: 50 * time.Millisecond})
	require.NoError(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		handled[id]++
		return nil
	})))
	o := w.options(w.asynq())
	steps := 0
	o.Step = func(string) error {
		if steps++; steps == 2 { // A batch is held, and asynq looks for what is due.
			_, err := old.EnqueueContext(t.Context(), asynq.NewTask("look", nil), asynq.ProcessIn(time.Second), asynq.TaskID("look"))
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return handled["look"] == 1
			}, patience, 10*time.Millisecond)
		}
		if steps%7 == 0 {
			return errCrash
		}
		return nil
	}
	for {
		r, err := importer.New(o).Run(t.Context())
		if !errors.Is(err, errCrash) {
			require.NoError(t, err)
			assert.Zero(t, r.After)
			break
		}
	}
	inspector := asynq.NewInspectorFromRedisClient(w.rdb)
	require.Eventually(t, func() bool {
		info, err := inspector.GetQueueInfo("default")
		return err == nil && info.Size == 0
	}, patience, 50*time.Millisecond)
	server.Shutdown()
	here := 0
	for i := range many {
		id := "order-" + strconv.Itoa(i)
		n := handled[id]
		if w.isHere(id) {
			here++
			n++
		}
		assert.Equal(t, 1, n, id)
	}
	t.Logf("%d of %d are here, the others were handled", here, many)
}

// BenchmarkImportAsynq moves b.N tasks.
func BenchmarkImportAsynq(b *testing.B) {
	w := newWorld(b)
	old := asynq.NewClientFromRedisClient(w.rdb)
	for i := range b.N {
		_, err := old.EnqueueContext(b.Context(), asynq.NewTask("order:timeout", make([]byte, 200)), asynq.ProcessIn(24*time.Hour), asynq.TaskID("order-"+strconv.Itoa(i)))
		require.NoError(b, err)
	}
	b.ResetTimer()
	r, err := importer.New(w.options(w.asynq())).Run(b.Context())
	require.NoError(b, err)
	require.EqualValues(b, b.N, r.Found)
}
