// Package migrate_test has the code of docs/migrate that needs the libraries which
// people come from, so that it compiles; what moves their messages is tested.
package migrate_test

import (
	"context"
	"errors"
	"log"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// callOff is what a consumer does.
func callOff(context.Context, []byte) error { return nil }

func Example_asynqProducer() {
	ctx := context.Background()
	redis := asynq.RedisClientOpt{Addr: "127.0.0.1:6379"}
	client, inspector := asynq.NewClient(redis), asynq.NewInspector(redis)

	timeout := asynq.NewTask("order:timeout", []byte(`{"order":42}`))
	_, err := client.EnqueueContext(ctx, timeout, asynq.TaskID("order-42/timeout"), asynq.ProcessIn(30*time.Minute))
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		log.Print("it waits already, or is archived")
	}

	// The customer paid in time.
	err = inspector.DeleteTask("default", "order-42/timeout")
	if errors.Is(err, asynq.ErrTaskNotFound) {
		log.Print("it was done already")
	}
}

func Example_asynqHandler() {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"}, asynq.Config{Concurrency: 10})
	mux := asynq.NewServeMux()
	mux.HandleFunc("order:timeout", func(ctx context.Context, task *asynq.Task) error {
		return callOff(ctx, task.Payload()) // After an error it is tried again, later.
	})
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}

// margin is what is left to asynq: what is due so soon may be on its way.
const margin = time.Minute

// moveScheduled moves what waits in asynq's scheduled set, and returns how many. One run
// at a time; it may be repeated, also where it was broken off.
func moveScheduled(ctx context.Context, inspector *asynq.Inspector, queue string, rdb redis.UniversalClient) (moved int, err error) {
	client, err := delay.NewClient(rdb, "orders", delay.WithConflict(delay.Keep))
	if err != nil {
		return 0, err
	}
	for page := 1; ; {
		tasks, err := inspector.ListScheduledTasks(queue, asynq.PageSize(500), asynq.Page(page))
		if err != nil || len(tasks) == 0 {
			return moved, err
		}
		before := moved
		for _, task := range tasks {
			if time.Until(task.NextProcessAt) < margin {
				continue
			}
			if err := move(ctx, inspector, task, client); err != nil {
				return moved, err
			}
			moved++
		}
		if moved == before {
			page++ // All of it stays.
		}
	}
}

// move schedules the message before it deletes the task: broken off in between, it waits
// in both, and the next run mends that.
func move(ctx context.Context, inspector *asynq.Inspector, task *asynq.TaskInfo, client *delay.Client) error {
	m := delay.Message{
		ID: task.ID, Topic: strings.ReplaceAll(task.Type, ":", "."), Headers: task.Headers, Body: task.Payload,
	}
	result, err := client.Schedule(ctx, m, delay.At(task.NextProcessAt))
	if err != nil {
		return err
	}
	err = inspector.DeleteTask(task.Queue, task.ID)
	if errors.Is(err, asynq.ErrTaskNotFound) { // It was cancelled since it was listed.
		err = client.Cancel(ctx, result.Ref)
		if errors.Is(err, delay.ErrNotFound) { // By cancelBoth, which asks us last.
			return nil
		}
	}
	return err
}

// cancelBoth cancels while both may have the message: asynq first, and always both. What
// the move schedules after our answer, it had listed before asynq's, so it finds the task
// gone and takes the message back.
func cancelBoth(ctx context.Context, inspector *asynq.Inspector, client *delay.Client, queue string, ref delay.Ref) error {
	old := inspector.DeleteTask(queue, ref.ID)
	if old != nil && !errors.Is(old, asynq.ErrTaskNotFound) && !errors.Is(old, asynq.ErrQueueNotFound) {
		return old // Its handler runs, or asynq's Redis does not answer.
	}
	err := client.Cancel(ctx, ref)
	if old == nil && errors.Is(err, delay.ErrNotFound) {
		return nil
	}
	return err
}

// TestMoveScheduled moves more than a page, beside tasks that are nearly due; a run
// that was broken off had scheduled some, and not deleted them.
func TestMoveScheduled(t *testing.T) {
	t.Parallel()
	server, err := service.StartRedis(t.Context())
	require.NoError(t, err)
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	require.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", 2))
	client, err := delay.NewClient(rdb, "orders")
	require.NoError(t, err)
	old, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)

	const far, near = 1200, 600
	due := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	ids := map[string]bool{}
	for i := range far + near {
		at := due.Add(time.Duration(i) * time.Second)
		if i >= far {
			at = time.Now().Add(margin / 2)
		}
		task := asynq.NewTask("order:timeout", []byte(`{"order":42}`))
		info, err := old.EnqueueContext(t.Context(), task, asynq.ProcessAt(at))
		require.NoError(t, err)
		if i < far {
			ids[info.ID] = true
		}
		if i%100 == 0 && i < far {
			_, err := client.Schedule(t.Context(), delay.Message{ID: info.ID, Topic: "order.timeout", Body: task.Payload()}, delay.At(at))
			require.NoError(t, err)
		}
	}

	moved, err := moveScheduled(t.Context(), inspector, "default", rdb)
	require.NoError(t, err)
	require.Equal(t, far, moved)
	left, err := inspector.ListScheduledTasks("default", asynq.PageSize(far+near))
	require.NoError(t, err)
	require.Len(t, left, near)
	for id := range ids {
		info, err := client.Get(t.Context(), delay.Ref{ID: id})
		require.NoError(t, err)
		require.Equal(t, delay.Scheduled, info.State)
		require.Equal(t, "order.timeout", info.Topic)
		require.JSONEq(t, `{"order":42}`, string(info.Body))
		require.False(t, info.DueAt.Before(due))
	}
	again, err := moveScheduled(t.Context(), inspector, "default", rdb)
	require.NoError(t, err)
	require.Zero(t, again)
}

// TestMoveKeepsCancels: whatever the instant of a cancel beside the move, what it says is
// gone waits in neither. Tasks that were cancelled when the move had listed them, and
// before it scheduled them, are those that a cancel must not lose.
func TestMoveKeepsCancels(t *testing.T) {
	t.Parallel()
	server, err := service.StartRedis(t.Context())
	require.NoError(t, err)
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	require.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", 2))
	client, err := delay.NewClient(rdb, "orders", delay.WithConflict(delay.Keep))
	require.NoError(t, err)
	old, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)

	const rounds = 300
	for i := range rounds {
		task := asynq.NewTask("order:timeout", []byte(`{"order":42}`))
		_, err := old.EnqueueContext(t.Context(), task, asynq.ProcessIn(24*time.Hour), asynq.TaskID("order-"+strconv.Itoa(i)))
		require.NoError(t, err)
	}
	listed, err := inspector.ListScheduledTasks("default", asynq.PageSize(rounds))
	require.NoError(t, err)
	require.Len(t, listed, rounds)
	for i, task := range listed {
		ref := delay.Ref{ID: task.ID}
		moved := make(chan error, 1)
		if i%3 == 0 { // Every third is cancelled between being listed and being scheduled.
			require.NoError(t, cancelBoth(t.Context(), inspector, client, "default", ref))
			moved <- move(t.Context(), inspector, task, client)
		} else {
			go func() { moved <- move(t.Context(), inspector, task, client) }()
			require.NoError(t, cancelBoth(t.Context(), inspector, client, "default", ref))
		}
		require.NoError(t, <-moved)
		_, err := client.Get(t.Context(), ref)
		require.ErrorIs(t, err, delay.ErrNotFound, "it was cancelled, and waits")
		_, err = inspector.GetTaskInfo("default", task.ID)
		require.ErrorIs(t, err, asynq.ErrTaskNotFound)
	}
}
