// Command first schedules a message that is due in one second, and receives it: first REDIS NATS, the addresses that bridge
// dev prints.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redisURL, natsURL string) error {
	broker, err := nats.Connect(natsURL)
	if err != nil {
		return err
	}
	defer broker.Close()
	arrivals, err := broker.SubscribeSync("order.timeout")
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	client, err := delay.NewClient(redis.NewClient(options), "orders")
	if err != nil {
		return err
	}
	result, err := client.Schedule(ctx, delay.Message{Topic: "order.timeout", Body: []byte("order 42")}, delay.After(time.Second))
	if err != nil {
		return err
	}
	fmt.Println("scheduled", result.Ref.ID)
	arrival, err := arrivals.NextMsg(30 * time.Second)
	if err != nil {
		return err
	}
	fmt.Println("received", string(arrival.Data))
	return nil
}
