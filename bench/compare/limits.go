package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/test/flow"
)

// publisher publishes the messages 0 to count-1 with a client library alone, as
// fast as it can, and returns when all are acknowledged.
type publisher func(ctx context.Context, broker flow.Broker, topic string, count int, headers headersOf) error

// headersOf are those that a message has beside its id.
type headersOf func(i int) []message.Header

func none(int) []message.Header { return nil }

// asBridged are the headers that the bridge gives a message.
func asBridged(i int) []message.Header {
	now := time.Now()
	m := message.Message{ID: identity(i), Queue: queue, DueAt: now, ScheduledAt: now, Attempt: 1}
	return m.AppendHeaders(nil)
}

// publishNATS keeps a window of messages without an answer.
func publishNATS(ctx context.Context, broker flow.Broker, topic string, count int, headers headersOf) error {
	nc, js, err := connectNATS(broker.Server().URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	for i := range count {
		m := nats.NewMsg(topic)
		m.Data = body
		m.Header.Set(jetstream.MsgIDHeader, identity(i))
		for _, header := range headers(i) {
			m.Header[header.Name] = []string{header.Value}
		}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(patience)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publish: %w", ctx.Err())
	}
}

// Those of RabbitMQ: as many connections as the bridge has, each with a window.
const (
	rabbitConnections = 4
	rabbitWindow      = 1000
)

func publishRabbitMQ(ctx context.Context, broker flow.Broker, topic string, count int, headers headersOf) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range rabbitConnections {
		group.Go(func() error {
			return onChannel(broker, func(channel *amqp.Channel) error {
				return publishOn(ctx, channel, topic, count*n/rabbitConnections, count*(n+1)/rabbitConnections, headers)
			})
		})
	}
	return group.Wait()
}

// publishOn publishes on one channel, while another goroutine waits for the
// confirms in their order.
func publishOn(ctx context.Context, channel *amqp.Channel, topic string, from, to int, headers headersOf) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	pending := make(chan *amqp.DeferredConfirmation, rabbitWindow)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pending)
		for i := from; i < to; i++ {
			m := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: identity(i), Body: body}
			if own := headers(i); len(own) > 0 {
				m.Timestamp, m.Headers = time.Now(), make(amqp.Table, len(own))
				for _, header := range own {
					m.Headers[header.Name] = header.Value
				}
			}
			confirm, err := channel.PublishWithDeferredConfirm("", topic, true, false, m)
			if err != nil {
				return err
			}
			select {
			case pending <- confirm:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		for confirm := range pending {
			if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
				return errors.Join(err, errors.New("not confirmed"))
			}
		}
		return nil
	})
	return group.Wait()
}

// kafkaPartitions is how many a topic of flow has.
const kafkaPartitions = 6

// onlyID is the one header of a message in Kafka.
func onlyID(i int) []message.Header {
	return []message.Header{{Name: idHeader, Value: identity(i)}}
}

// publishKafka has one request a partition under way. Leaders that are not there
// yet are waited for.
func publishKafka(ctx context.Context, broker flow.Broker, topic string, count int, headers headersOf) error {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(broker.Server().Addr()), Timeout: patience, Transport: transport}
	group, ctx := errgroup.WithContext(ctx)
	for partition := range kafkaPartitions {
		from, to := count*partition/kafkaPartitions, count*(partition+1)/kafkaPartitions
		group.Go(func() error {
			for ; from < to; from += batchSize {
				if err := produce(ctx, client, topic, partition, from, min(from+batchSize, to), headers); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func produce(ctx context.Context, client *kafka.Client, topic string, partition, from, to int, headers headersOf) error {
	for {
		records := make([]kafka.Record, to-from)
		for i := range records {
			records[i].Value = kafka.NewBytes(body)
			for _, header := range headers(from + i) {
				records[i].Headers = append(records[i].Headers, kafka.Header{Key: header.Name, Value: []byte(header.Value)})
			}
		}
		response, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
		})
		if err != nil {
			return err
		}
		if !errors.Is(response.Error, kafka.NotLeaderForPartition) {
			return response.Error
		}
		if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return err
		}
	}
}
