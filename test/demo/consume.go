package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamName is the stream that binds the topics of orders; the bridge makes none.
const streamName = "ORDERS"

// consume makes the stream and gives each message to arrived, until ctx ends.
func consume(ctx context.Context, url string, arrived func(id, due string)) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	setup, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stream, err := js.CreateOrUpdateStream(setup, jetstream.StreamConfig{Name: streamName, Subjects: []string{"order.>"}, MaxAge: 24 * time.Hour})
	if err != nil {
		return err
	}
	consumer, err := stream.CreateOrUpdateConsumer(setup, jetstream.ConsumerConfig{Durable: "demo", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		arrived(m.Headers().Get("delay-id"), m.Headers().Get("delay-due-at"))
		_ = m.Ack() // One that is lost is sent again.
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Closed()
	return nil
}

func printArrival(id, due string) {
	at, err := time.Parse(time.RFC3339Nano, due)
	if err != nil {
		fmt.Printf("%s arrived without a due time: %v\n", id, err)
		return
	}
	fmt.Printf("%s arrived, due %s, %s later\n", id, due, time.Since(at).Round(time.Millisecond))
}
