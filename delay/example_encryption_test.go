package delay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// Bodies are encrypted before they leave the process. In a program the keys come from
// [delay.OpenKeyring]; the bridge has the same.
func ExampleWithEncryption() {
	rdb, done := exampleRedis()
	defer done()
	ring, err := delay.ParseKeyring([]byte("2026-11 Zm9yIHRoZSBleGFtcGxlIG9ubHksIDMyIGJ5dGVzLiE="))
	if err != nil {
		panic(err)
	}
	client, err := delay.NewClient(rdb, "orders", delay.WithEncryption(ring))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	m := delay.Message{ID: "order-42/timeout", Topic: "order.timeout", Body: []byte("to Ann, 42 Main Street")}
	res, err := client.Schedule(ctx, m, delay.After(30*time.Minute))
	if err != nil {
		panic(err)
	}
	withKeys, err := client.Get(ctx, res.Ref)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", withKeys.Body)

	other, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	withoutKeys, err := other.Get(ctx, res.Ref)
	if err != nil {
		panic(err)
	}
	fmt.Println(withoutKeys.BodyErr)
	// Output:
	// to Ann, 42 Main Street
	// sealed: unknown key "2026-11"
}
