package retry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/retry"
)

func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // It stands for your Redis.
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	if err := delay.EnsureQueue(ctx, rdb, "orders", 8); err != nil {
		panic(err)
	}
	handle := func(context.Context, retry.Message) error { return errors.New("the shop is busy") }

	again, err := retry.New(client, retry.Policy{
		Limit: 10, Delay: retry.Exponential(time.Second, time.Hour), DeadTopic: "order.dead",
	})
	if err != nil {
		panic(err)
	}
	m := retry.Message{Name: "orders/3/4711", Topic: "orders", Body: []byte(`{"order": 42}`)}
	err = again.Handle(ctx, m, handle) // nil: acknowledge the message
	fmt.Println(err)
	// Output: <nil>
}
