package delay_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

func Example() {
	ctx := context.Background()
	rdb, done := exampleRedis() // Yours: redis.NewClient(…)
	defer done()

	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	result, err := client.Schedule(ctx, delay.Message{
		ID: "order-42/timeout", Key: "order-42", Topic: "order.timeout", Body: []byte(`{"order":42}`),
	}, delay.After(30*time.Minute))
	fmt.Println(result.Status, err)

	// The customer paid in time.
	fmt.Println(client.Cancel(ctx, result.Ref))
	// Output:
	// created <nil>
	// <nil>
}

func ExampleClient_Schedule() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}

	reminder := delay.Message{ID: "reminder-7", Topic: "mail.reminder", Headers: map[string]string{"lang": "en"}}
	if _, err := client.Schedule(ctx, reminder, delay.At(time.Now().Add(24*time.Hour))); err != nil {
		panic(err)
	}
	// The same identity again changes nothing, and says so.
	_, err = client.Schedule(ctx, reminder, delay.After(time.Minute))
	fmt.Println(errors.Is(err, delay.ErrDuplicate))
	// Output: true
}

func ExampleClient_ScheduleBatch() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}

	results, err := client.ScheduleBatch(ctx, []delay.Request{
		{Message: delay.Message{ID: "a", Topic: "order.timeout"}, When: delay.After(time.Minute)},
		{Message: delay.Message{ID: "b", Topic: "not a subject"}, When: delay.After(time.Minute)},
		{Message: delay.Message{ID: "c", Topic: "order.timeout"}, When: delay.After(time.Hour)},
	})
	if err != nil {
		panic(err) // No item could be tried.
	}
	for _, result := range results {
		fmt.Println(result.Ref.ID, result.Status, errors.Is(result.Err, delay.ErrInvalid))
	}
	// Output:
	// a created false
	// b  true
	// c created false
}

func ExampleClient_Cancel() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	if _, err := client.Schedule(ctx, delay.Message{ID: "a", Topic: "order.timeout"}, delay.After(time.Hour)); err != nil {
		panic(err)
	}

	for range 2 {
		switch err := client.Cancel(ctx, delay.Ref{ID: "a"}); {
		case err == nil:
			fmt.Println("it will never be published")
		case errors.Is(err, delay.ErrTooLate):
			fmt.Println("it is being published right now")
		case errors.Is(err, delay.ErrNotFound):
			fmt.Println("it was published or cancelled before")
		case errors.Is(err, delay.ErrMaybePublished):
			fmt.Println("removed, but a copy may have been published")
		default:
			fmt.Println("not known:", err)
		}
	}
	// Output:
	// it will never be published
	// it was published or cancelled before
}

// A call whose reply was lost goes on as the same call. The loop ends: with an answer, with
// ctx, or when nobody can tell any more.
func ExampleRepeat() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}

	m := delay.Message{ID: "a", Topic: "order.timeout"}
	result, err := client.Schedule(ctx, m, delay.After(time.Hour))
	for errors.Is(err, delay.ErrUnknown) && ctx.Err() == nil {
		result, err = client.Schedule(ctx, m, delay.After(time.Hour), delay.Repeat(err))
	}
	switch {
	case err == nil:
		fmt.Println("it waits:", result.Status)
	case errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrForgotten):
		fmt.Println("it may wait, may have been published, or was never there: alert a human, or schedule it again")
	default:
		fmt.Println("it does not wait:", err)
	}
	// Output: it waits: created
}

func ExampleClient_Reschedule() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	m := delay.Message{ID: "a", Key: "order-42", Topic: "order.timeout"}
	result, err := client.Schedule(ctx, m, delay.After(time.Hour))
	if err != nil {
		panic(err)
	}

	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	fmt.Println(client.Reschedule(ctx, result.Ref, delay.At(due)))
	info, err := client.Get(ctx, result.Ref)
	fmt.Println(info.DueAt.UTC(), err)
	// Output:
	// <nil>
	// 2030-01-02 03:04:05 +0000 UTC <nil>
}

func ExampleClient_Get() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	m := delay.Message{ID: "a", Topic: "order.timeout", Body: []byte("hello")}
	if _, err := client.Schedule(ctx, m, delay.After(time.Hour)); err != nil {
		panic(err)
	}

	info, err := client.Get(ctx, delay.Ref{ID: "a"})
	fmt.Println(info.State, info.Attempt, string(info.Body), err)
	_, err = client.Get(ctx, delay.Ref{ID: "b"})
	fmt.Println(errors.Is(err, delay.ErrNotFound))
	// Output:
	// scheduled 1 hello <nil>
	// true
}

func ExampleWithConflict() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	m := delay.Message{ID: "a", Topic: "order.timeout"}
	for _, policy := range []delay.Conflict{delay.Keep, delay.Keep, delay.Replace} {
		client, err := delay.NewClient(rdb, "orders", delay.WithConflict(policy))
		if err != nil {
			panic(err)
		}
		result, err := client.Schedule(ctx, m, delay.After(time.Hour))
		fmt.Println(result.Status, err)
	}
	// Output:
	// created <nil>
	// existing <nil>
	// replaced <nil>
}

func ExampleWhen_MaxWait() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders", delay.WithConflict(delay.Replace))
	if err != nil {
		panic(err)
	}
	for _, body := range []string{"hello", "how are you?", "well, thanks"} {
		result, err := client.Schedule(ctx,
			delay.Message{ID: "conversation-7", Topic: "conversation.summarize", Body: []byte(body)},
			delay.After(5*time.Minute).MaxWait(time.Hour)) // after the last line, and at most after the first
		fmt.Println(result.Status, err)
	}
	// Output:
	// created <nil>
	// replaced <nil>
	// replaced <nil>
}

func ExampleWithDurability() {
	ctx := context.Background()
	rdb, done := exampleRedis() // It has no replica.
	defer done()
	client, err := delay.NewClient(rdb, "orders", delay.WithDurability(delay.Replicas(1)))
	if err != nil {
		panic(err)
	}
	result, err := client.Schedule(ctx, delay.Message{ID: "a", Topic: "order.timeout"}, delay.After(time.Hour))
	fmt.Println(result.Status, errors.Is(err, delay.ErrNotDurable))
	// Output: created true
}

// A producer may start before the first bridge.
func ExampleEnsureQueue() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()

	if err := delay.EnsureQueue(ctx, rdb, "reminders", 8); err != nil {
		panic(err)
	}
	client, err := delay.NewClient(rdb, "reminders")
	if err != nil {
		panic(err)
	}
	result, err := client.Schedule(ctx, delay.Message{Topic: "mail.reminder"}, delay.After(24*time.Hour))
	fmt.Println(result.Status, err)
	// Output: created <nil>
}

func ExampleJSON() {
	type Order struct {
		Number int `json:"number"`
	}
	const orderTimeout = delay.JSON[Order]("order.timeout") // Producers and consumers share it.

	m, err := orderTimeout.Message("order-42/timeout", Order{Number: 42})
	if err != nil {
		panic(err)
	}
	m.Key = "order-42"
	fmt.Println(m.Key, m.Topic, string(m.Body), m.Headers["content-type"])

	order, err := orderTimeout.Decode(m.Body)
	fmt.Println(order.Number, err)
	// Output:
	// order-42 order.timeout {"number":42} application/json
	// 42 <nil>
}
