package migrate_test

import (
	"context"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
)

// seen reports whether a message of that id was handled already, and notes it.
func seen(context.Context, string) bool { return false }

func Example_natsConsumer() {
	ctx := context.Background()
	nc, err := nats.Connect("nats://127.0.0.1:4222")
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
		Durable: "order-timeouts", FilterSubject: "order.timeout", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 25,
	})
	if err != nil {
		log.Fatal(err)
	}
	running, err := consumer.Consume(func(m jetstream.Msg) {
		if !seen(ctx, m.Headers().Get("delay-uid")) {
			if err := callOff(ctx, m.Data()); err != nil {
				_ = m.NakWithDelay(time.Minute) // The broker tries again, not the bridge.
				return
			}
		}
		_ = m.Ack()
	})
	if err != nil {
		log.Fatal(err)
	}
	<-running.Closed()
}

func Example_delayedExchange() {
	ctx := context.Background()
	conn, err := amqp.Dial("amqp://guest:guest@127.0.0.1:5672/")
	if err != nil {
		log.Fatal(err)
	}
	channel, err := conn.Channel()
	if err != nil {
		log.Fatal(err)
	}
	err = channel.ExchangeDeclare("delayed", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "direct"})
	if err != nil {
		log.Fatal(err)
	}
	err = channel.PublishWithContext(ctx, "delayed", "order.timeout", false, false, amqp.Publishing{
		MessageId: "order-42/timeout", DeliveryMode: amqp.Persistent, Body: []byte(`{"order":42}`),
		Headers: amqp.Table{"x-delay": (30 * time.Minute).Milliseconds()},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func Example_bindings() {
	conn, err := amqp.Dial("amqp://guest:guest@127.0.0.1:5672/")
	if err != nil {
		log.Fatal(err)
	}
	channel, err := conn.Channel()
	if err != nil {
		log.Fatal(err)
	}
	if err := channel.ExchangeDeclare("orders", "direct", true, false, false, false, nil); err != nil {
		log.Fatal(err)
	}
	for _, exchange := range []string{"delayed", "orders"} { // The old way and the new one.
		if err := channel.QueueBind("order-timeouts", "order.timeout", exchange, false, nil); err != nil {
			log.Fatal(err)
		}
	}
}
