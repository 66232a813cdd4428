// Package migrate_test has the code of docs/migrate that needs the libraries which
// people come from, so that it compiles, and tests the import with these libraries.
package migrate_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/delaybridge/delaybridge/delay"
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

// cancelBoth cancels while both may have the message: asynq first, and always both. What the
// import schedules after our answer it held before, so it finds that asynq has cancelled the task, and
// cancels the message.
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
