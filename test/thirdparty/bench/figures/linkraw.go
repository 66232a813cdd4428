package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kafka"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/rabbitmq"
)

// rawCalls is how many calls share the messages, as many as a queue has shards.
const rawCalls = 8

// measureRaw publishes count messages with the bridge's own sink, all at once and
// with nothing that decides how many are in flight: the link is never idle.
func (t *linkTrial) measureRaw(ctx context.Context, count int) error {
	topic := t.w.Topic + "-raw"
	if err := t.w.Broker.MakeTopic(ctx, topic); err != nil {
		return err
	}
	sink, err := newRawSink(t.broker, t.w.Link.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close(context.WithoutCancel(ctx)) }()
	batch := rawMessages(topic, t.w.Queue(), count+1)
	if err := publishAll(ctx, sink, batch[:1]); err != nil { // It is connected.
		return err
	}
	began := time.Now()
	sent, err := carriedBy(t.w.Link, func() error { return publishAtOnce(ctx, sink, batch[1:]) })
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	t.raw = pace{perSecond: rate(count, time.Since(began)), bytesEach: float64(sent) / float64(count)}
	return nil
}

func newRawSink(broker, addr string) (sinks.Sink, error) {
	const name = "figures"
	switch broker {
	case "nats":
		return nats.New(nats.Config{URL: "nats://" + addr, Name: name}, slog.New(slog.DiscardHandler))
	case "rabbitmq":
		config := rabbitmq.Config{URL: "amqp://guest:guest@" + addr + "/", Name: name}
		return rabbitmq.New(config, slog.New(slog.DiscardHandler))
	default:
		return kafka.New(kafka.Config{Brokers: []string{addr}, Name: name}, slog.New(slog.DiscardHandler))
	}
}

func publishAtOnce(ctx context.Context, sink sinks.Sink, batch []message.Message) error {
	problems := make([]error, rawCalls)
	var calls sync.WaitGroup
	for i := range rawCalls {
		part := batch[len(batch)*i/rawCalls : len(batch)*(i+1)/rawCalls]
		calls.Go(func() { problems[i] = publishAll(ctx, sink, part) })
	}
	calls.Wait()
	return errors.Join(problems...)
}

// publishAll fails where one message is not acknowledged, or was stored before.
func publishAll(ctx context.Context, sink sinks.Sink, batch []message.Message) error {
	for i, outcome := range sinks.Publish(ctx, sink, batch) {
		if outcome.Class != sinks.Acknowledged || outcome.Duplicate {
			return fmt.Errorf("message %d of %d: %s, duplicate %t: %w", i, len(batch), outcome.Class, outcome.Duplicate, outcome.Err)
		}
	}
	return nil
}

// rawMessages are what the bridge would publish, to the byte.
func rawMessages(topic, queue string, count int) []message.Message {
	bodies, now := newBodies(), time.Now()
	messages := make([]message.Message, count)
	for i := range messages {
		id := fmt.Sprintf("l-%024d", i)
		messages[i] = message.Message{
			ID: id, Topic: topic, Body: bodies.next(), Queue: queue, DueAt: now, ScheduledAt: now, Attempt: 1,
			Token: id + strings.Repeat("r", message.TokenLength),
		}
		messages[i].Token = messages[i].Token[len(messages[i].Token)-message.TokenLength:]
	}
	return messages
}

// bodies are of 256 to 1,000 bytes that nothing can compress, the same ones in
// each run.
type bodies struct{ random *rand.Rand }

func newBodies() bodies {
	return bodies{rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same each time is what is wanted
}

func (b bodies) next() []byte {
	body := make([]byte, 256+b.random.IntN(745))
	for i := range body {
		body[i] = byte(b.random.Uint32())
	}
	return body
}
