package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// idHeader carries a message's id where the broker has no place for it.
const idHeader = "id"

// schedules are NATS' own: a stream whose messages are published again, within it,
// at the time in their header.
type schedules struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	delivery jetstream.ConsumeContext // nil until it delivers
	taker    taker
}

const (
	scheduleStream = "SCHEDULES"
	// natsWindow is how many messages may be without an answer: more gains nothing.
	natsWindow = 4000
)

func connectNATS(url string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url, nats.Timeout(patience))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(natsWindow))
	return nc, js, err
}

func newSchedules(ctx context.Context, server *service.Server) (p *schedules, err error) {
	p = &schedules{}
	if p.nc, p.js, err = connectNATS(server.URL()); err != nil {
		return nil, err
	}
	p.stream, err = p.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: scheduleStream, Subjects: []string{"wait.>", topic}, AllowMsgSchedules: true,
	})
	return p, err
}

// schedule waits for each answer where a call has one message, and for all of them
// where it has more.
func (p *schedules) schedule(ctx context.Context, l load) error {
	return l.by(ctx, func(ctx context.Context, from, n int) error {
		if n == 1 {
			_, err := p.js.PublishMsg(ctx, scheduled(from, l.dueAt(from)))
			return err
		}
		answers := make([]jetstream.PubAckFuture, n)
		for i := range n {
			var err error
			m := scheduled(from+i, l.dueAt(from+i))
			if answers[i], err = p.js.PublishMsgAsync(m, jetstream.WithStallWait(patience)); err != nil {
				return err
			}
		}
		return acknowledged(ctx, answers)
	})
}

// scheduled has the time to the nanosecond: that of jetstream.WithScheduleAt is cut
// to the second, and so up to a second early.
func scheduled(i int, due time.Time) *nats.Msg {
	m := nats.NewMsg("wait." + identity(i))
	m.Data = body
	m.Header.Set(idHeader, identity(i))
	m.Header.Set(jetstream.ScheduleHeader, "@at "+due.UTC().Format(time.RFC3339Nano))
	m.Header.Set(jetstream.ScheduleTargetHeader, topic)
	return m
}

// acknowledged waits for all answers.
func acknowledged(ctx context.Context, answers []jetstream.PubAckFuture) error {
	for _, answer := range answers {
		select {
		case <-answer.Ok():
		case err := <-answer.Err():
			return err
		case <-ctx.Done():
			return fmt.Errorf("publish: %w", ctx.Err())
		}
	}
	return nil
}

func (p *schedules) deliver(ctx context.Context, to *arrivals) error {
	p.taker.to.Store(to)
	if p.delivery != nil {
		return nil
	}
	consumer, err := p.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{topic}, DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return err
	}
	p.delivery, err = consumer.Consume(func(m jetstream.Msg) { p.taker.note(m.Headers().Get(idHeader)) })
	return err
}

// bytes is what the stream takes, on the disk.
func (p *schedules) bytes(ctx context.Context) (float64, error) {
	info, err := p.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return float64(info.State.Bytes), nil
}

func (p *schedules) close(context.Context) error {
	if p.delivery != nil {
		p.delivery.Stop()
	}
	p.nc.Close()
	return nil
}
