package delay_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// What was a task of asynq or a job of BullMQ: see docs/migrate.
func Example_insteadOfATask() {
	ctx := context.Background()
	rdb, done := exampleRedis() // Yours: redis.NewClient(…)
	defer done()

	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	timeout := delay.Message{ID: "order-42/timeout", Topic: "order.timeout", Body: []byte(`{"order":42}`)}
	_, err = client.Schedule(ctx, timeout, delay.After(30*time.Minute))
	if errors.Is(err, delay.ErrDuplicate) {
		fmt.Println("it waits already, or is a dead letter")
	}

	// The customer asked for more time, and then paid.
	ref := delay.Ref{ID: "order-42/timeout"}
	fmt.Println(client.Reschedule(ctx, ref, delay.After(2*time.Hour)))
	err = client.Cancel(ctx, ref)
	switch {
	case errors.Is(err, delay.ErrTooLate), errors.Is(err, delay.ErrNotFound):
		fmt.Println("it is being published, or was")
	case errors.Is(err, delay.ErrMaybePublished):
		fmt.Println("it is removed, but a copy may be out")
	default:
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
}

// What a handler does where it fails and wants to be tried again later, by any broker,
// later each time, and not for ever.
func Example_tryAgainLater() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders", delay.WithConflict(delay.Keep))
	if err != nil {
		panic(err)
	}

	// The id is a new one, since the bridge may not have heard yet that the broker has
	// this message. Keep makes it once, if the consumer is given the message twice.
	again := func(id string, tries int, body []byte) error {
		if tries >= 10 {
			return errors.New("tried ten times")
		}
		_, err := client.Schedule(ctx, delay.Message{
			ID: fmt.Sprintf("%s/try-%d", id, tries+1), Topic: "order.timeout", Body: body,
			Headers: map[string]string{"tries": strconv.Itoa(tries + 1)},
		}, delay.After(time.Minute<<tries))
		return err
	}
	fmt.Println(again("order-42/timeout", 0, []byte(`{"order":42}`)))
	info, err := client.Get(ctx, delay.Ref{ID: "order-42/timeout/try-1"})
	fmt.Println(info.Headers["tries"], err)
	// Output:
	// <nil>
	// 1 <nil>
}

// What was a message with x-delay, published to RabbitMQ's delayed message exchange: the
// sink of the queue is the exchange that x-delayed-type named.
func Example_insteadOfXDelay() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}

	headers := map[string]string{"content-type": "application/json"}
	result, err := client.Schedule(ctx, delay.Message{
		ID: "order-42/timeout", Topic: "order.timeout", Headers: headers, Body: []byte(`{"order":42}`),
	}, delay.After(30*time.Minute))
	fmt.Println(result.Status, err)
	// Output: created <nil>
}
