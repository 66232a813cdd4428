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

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/test/trial"
)

// publisher publishes with a client library alone, and returns when all is
// acknowledged.
type publisher func(ctx context.Context, broker trial.Broker, topic string, s series) error

// series are messages for a publisher: each when it is due, or, where load.due is
// zero, all as fast as they can go.
type series struct {
	load
	headers headersOf
}

func (s series) end() int { return s.first + s.count }

// await waits until a message is due.
func (s series) await(ctx context.Context, i int) error {
	if s.due.IsZero() || !time.Now().Before(s.dueAt(i)) {
		return nil
	}
	return sleepUntil(ctx, s.dueAt(i))
}

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
func publishNATS(ctx context.Context, broker trial.Broker, topic string, s series) error {
	nc, js, err := connectNATS(broker.Server().URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	for i := s.first; i < s.end(); i++ {
		if err := s.await(ctx, i); err != nil {
			return err
		}
		m := nats.NewMsg(topic)
		m.Data = body
		m.Header.Set(jetstream.MsgIDHeader, identity(i))
		for _, header := range s.headers(i) {
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

func publishRabbitMQ(ctx context.Context, broker trial.Broker, topic string, s series) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range rabbitConnections {
		group.Go(func() error {
			return onChannel(broker, func(channel *amqp.Channel) error {
				return publishOn(ctx, channel, topic, s, n)
			})
		})
	}
	return group.Wait()
}

// publishOn publishes the nth connection's part on one channel, while another
// goroutine waits for the confirms in their order.
func publishOn(ctx context.Context, channel *amqp.Channel, topic string, s series, n int) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	pending := make(chan *amqp.DeferredConfirmation, rabbitWindow)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(pending)
		for i := s.first + n; i < s.end(); i += rabbitConnections {
			if err := s.await(ctx, i); err != nil {
				return err
			}
			m := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: identity(i), Body: body}
			if own := s.headers(i); len(own) > 0 {
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

// kafkaPartitions is how many a topic of a trial has.
const kafkaPartitions = 6

// onlyID is the one header of a message in Kafka.
func onlyID(i int) []message.Header {
	return []message.Header{{Name: idHeader, Value: identity(i)}}
}

// publishKafka has one request a partition under way, of what is due and no more
// than a batch.
func publishKafka(ctx context.Context, broker trial.Broker, topic string, s series) error {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(broker.Server().Addr()), Timeout: patience, Transport: transport}
	group, ctx := errgroup.WithContext(ctx)
	for partition := range kafkaPartitions {
		group.Go(func() error {
			for next := s.first + partition; next < s.end(); {
				if err := s.await(ctx, next); err != nil {
					return err
				}
				var records []kafka.Record
				for now := time.Now(); next < s.end() && len(records) < batchSize && !now.Before(s.dueAt(next)); next += kafkaPartitions {
					records = append(records, s.record(next))
				}
				if err := produce(ctx, client, topic, partition, records); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (s series) record(i int) kafka.Record {
	record := kafka.Record{Value: kafka.NewBytes(body)}
	for _, header := range s.headers(i) {
		record.Headers = append(record.Headers, kafka.Header{Key: header.Name, Value: []byte(header.Value)})
	}
	return record
}

// produce waits for a leader that is not there yet.
func produce(ctx context.Context, client *kafka.Client, topic string, partition int, records []kafka.Record) error {
	for {
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
