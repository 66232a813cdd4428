package delay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
)

// producer stands for your broker's client. Its Publish must return nil only
// after the broker has acknowledged: all replicas of Kafka, a confirmed
// persistent message of RabbitMQ, a JetStream ack of NATS.
type producer struct{}

func (producer) Publish(_ context.Context, topic string, headers map[string]string, _ []byte) error {
	fmt.Println(topic, headers["content-type"])
	return nil
}

// If Redis is away, the broker carries the message, and a bridge brings it to
// Redis when that is back.
func ExampleWithCompensation() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}) // Nobody listens there.
	defer func() { _ = rdb.Close() }()
	client, err := delay.NewClient(rdb, "orders", delay.WithCompensation(producer{}.Publish), delay.WithTimeout(time.Second))
	if err != nil {
		panic(err)
	}
	result, err := client.Schedule(context.Background(), delay.Message{ID: "order-42/timeout", Topic: "order.timeout"}, delay.After(time.Hour))
	fmt.Println(result.Status, err)
	// Output:
	// delay.compensation.orders application/json
	// compensated <nil>
}
