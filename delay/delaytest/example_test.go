package delaytest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
)

// Order is what the messages of the shop are about.
type Order struct{ Number int }

const orderTimeout = delay.JSON[Order]("order.timeout")

// Shop is a producer: an order that is not paid within half an hour is called off.
type Shop struct{ Queue delay.Scheduler }

func (s Shop) ref(number int) delay.Ref {
	return delay.Ref{ID: fmt.Sprintf("order-%d/timeout", number)}
}

// Place begins to wait for the payment.
func (s Shop) Place(ctx context.Context, number int) error {
	m, err := orderTimeout.Message(s.ref(number).ID, Order{Number: number})
	if err != nil {
		return err
	}
	_, err = s.Queue.Schedule(ctx, m, delay.After(30*time.Minute))
	return err
}

// Paid reports whether the payment came in time.
func (s Shop) Paid(ctx context.Context, number int) (inTime bool, err error) {
	err = s.Queue.Cancel(ctx, s.ref(number))
	if errors.Is(err, delay.ErrTooLate) || errors.Is(err, delay.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// TestShop tests the producer: this is how yours may look.
func TestShop(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "orders") // package delay/delaytest: in memory, with a clock that the test moves
	shop := Shop{Queue: queue.Client}   // the real client
	for number := range 2 {
		if err := shop.Place(t.Context(), number); err != nil {
			t.Fatal(err)
		}
	}
	queue.RequireScheduled("order.timeout", delay.After(30*time.Minute))

	queue.Advance(29 * time.Minute)
	queue.RequireNotPublished()
	if inTime, err := shop.Paid(t.Context(), 0); !inTime || err != nil {
		t.Fatal(inTime, err)
	}

	queue.Advance(24 * time.Hour)
	m := queue.RequirePublished("order.timeout")
	if order, err := orderTimeout.Decode(m.Body); err != nil || order.Number != 1 || m.At.Sub(queue.Now()) > -23*time.Hour {
		t.Fatal(order, m.At, err)
	}
	if inTime, err := shop.Paid(t.Context(), 1); inTime || err != nil {
		t.Fatal(inTime, err)
	}
	queue.RequireNotScheduled()
}

// TestUnpaidOrderIsCalledOff is the test that docs/testing.md shows.
func TestUnpaidOrderIsCalledOff(t *testing.T) {
	queue := delaytest.New(t, "orders", delaytest.WithBroker(delaytest.Kafka))
	shop := Shop{Queue: queue.Client} // a *delay.Client; queue itself is a delay.Scheduler

	err := shop.Place(t.Context(), 42)
	if err != nil {
		t.Fatal(err)
	}
	queue.RequireScheduled("order.timeout", delay.After(30*time.Minute))

	queue.Advance(30 * time.Minute)
	m := queue.RequirePublished("order.timeout") // its headers are those that a consumer gets
	if m.Headers["delay-id"] != "order-42/timeout" {
		t.Fatal(m.Headers)
	}
}

// fullQueue is a queue whose Redis is full; it embeds one for all other calls.
type fullQueue struct{ delay.Scheduler }

func (fullQueue) Schedule(context.Context, delay.Message, delay.When, ...delay.CallOption) (delay.Result, error) {
	return delay.Result{}, delay.ErrFull
}

// TestShopWithoutRedis tests what the producer does where a call fails.
func TestShopWithoutRedis(t *testing.T) {
	t.Parallel()
	queue := delaytest.New(t, "orders")
	if err := (Shop{Queue: fullQueue{queue}}).Place(t.Context(), 42); !errors.Is(err, delay.ErrFull) {
		t.Fatal(err)
	}
	queue.RequireNothing()
}

// exampleTest stands for the test in which an example would run, and ends it.
type exampleTest struct {
	testing.TB

	ends []func()
}

func (*exampleTest) Helper()                        {}
func (*exampleTest) Context() context.Context       { return context.Background() }
func (*exampleTest) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (e *exampleTest) Cleanup(end func())           { e.ends = append(e.ends, end) }
func (e *exampleTest) end() {
	for _, end := range e.ends {
		end()
	}
}

func Example() {
	t := &exampleTest{} // Yours: the test's own.
	defer t.end()
	ctx := context.Background()

	queue := delaytest.New(t, "orders", delaytest.WithBroker(delaytest.NATS))
	shop := Shop{Queue: queue} // A delay.Scheduler, and queue.Client is a *delay.Client.
	fmt.Println(shop.Place(ctx, 42))
	m := queue.RequireScheduled("order.timeout", delay.After(30*time.Minute))
	fmt.Println(m.ID)

	for _, m := range queue.Advance(30 * time.Minute) {
		fmt.Println(m.Topic, string(m.Body))
	}
	fmt.Println(shop.Paid(ctx, 42))
	// Output:
	// <nil>
	// order-42/timeout
	// order.timeout {"Number":42}
	// false <nil>
}

// A consumer that schedules is part of the test: what it schedules is published in the
// same Advance, if it is due by then.
func ExampleQueue_Handle() {
	t := &exampleTest{}
	defer t.end()
	queue := delaytest.New(t, "orders")
	queue.Handle("reminder", func(m delaytest.Published) {
		fmt.Println(m.ID, "after", m.At.Sub(m.DueAt))
		next := delay.Message{ID: m.ID + "+", Topic: "reminder"}
		if _, err := queue.Schedule(context.Background(), next, delay.After(24*time.Hour)); err != nil {
			fmt.Println(err)
		}
	})
	if _, err := queue.Schedule(context.Background(), delay.Message{ID: "a", Topic: "reminder"}, delay.After(0)); err != nil {
		fmt.Println(err)
	}
	queue.Advance(3 * 24 * time.Hour)
	// Output:
	// a after 0s
	// a+ after 0s
	// a++ after 0s
	// a+++ after 0s
}
