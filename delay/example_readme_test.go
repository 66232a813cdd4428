package delay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
)

// What README.md shows.
func Example_calls() {
	use := func(ctx context.Context, body []byte, t time.Time) error {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
		client, err := delay.NewClient(rdb, "orders")
		if err != nil {
			return err
		}
		res, err := client.Schedule(ctx, delay.Message{
			ID: "order-42/timeout", Key: "order-42", Topic: "order.timeout", Body: body,
		}, delay.After(30*time.Minute))
		if err != nil {
			return err
		}
		err = client.Reschedule(ctx, res.Ref, delay.At(t))
		if err != nil {
			return err
		}
		info, err := client.Get(ctx, res.Ref)
		if err != nil {
			return err
		}
		fmt.Println(info.DueAt)
		err = client.Cancel(ctx, res.Ref) // nil: it will never be published
		if err != nil {
			return err
		}
		n, err := client.CancelAll(ctx, delay.Filter{Tag: "customer-7"}) // all of a tag, or of a Key
		fmt.Println(n.Done)
		return err
	}
	_ = use
}
