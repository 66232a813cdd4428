package delay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

func ExampleClient_CancelAll() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	for _, id := range []string{"reminder-1", "reminder-2"} {
		m := delay.Message{ID: id, Topic: "mail.reminder", Tags: []string{"customer-7"}}
		if _, err := client.Schedule(ctx, m, delay.After(time.Hour)); err != nil {
			panic(err)
		}
	}

	// The customer is deleted. What is in flight is published, or waits again soon: so it is
	// asked for again, with a pause.
	for {
		n, err := client.CancelAll(ctx, delay.Filter{Tag: "customer-7"})
		if err != nil {
			panic(err)
		}
		fmt.Println(n.Done, n.MaybePublished, n.TooLate)
		if n.TooLate == 0 {
			break
		}
		<-time.After(time.Second)
	}
	// Output: 2 0 0
}
