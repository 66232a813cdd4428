package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

const (
	// ackWait is after what silence a message goes to another bridge. While
	// it is in work the server is told so, three times as often.
	ackWait = 10 * time.Second
	// pendingBatches bounds the unacknowledged messages of all bridges together.
	pendingBatches = 10
	// earlierPause is the time between two looks for what was left unacknowledged.
	earlierPause = 100 * time.Millisecond
	// pollTime is how long one request for a message lasts.
	pollTime = 30 * time.Second
)

// consumed are the messages of one topic: a durable pull consumer with explicit
// acknowledgements on the stream that binds the subject. If none does, a stream is made for compensations, with file
// storage and one replica: make one yourself for more.
type consumed struct {
	config Config
	source.Options
}

// Source implements [kind.Consumed].
func (c Config) Source(options source.Options) (source.Source, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	return &consumed{config: c, Options: options}, nil
}

// Run implements [source.Source].
func (s *consumed) Run(ctx context.Context, handle source.Handler) {
	source.Reconnect(ctx, &s.Options, func(ctx context.Context) error { return s.session(ctx, handle) })
}

func (s *consumed) session(ctx context.Context, handle source.Handler) error {
	down := make(chan struct{})
	nc, err := s.config.Connect(ctx, func() { close(down) })
	if err != nil {
		return err
	}
	defer func() {
		_ = nc.FlushTimeout(time.Second) // What was said last is to be heard.
		nc.Close()
		<-down
	}()
	subscribed, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	watching := make(chan struct{})
	go func() { // It ends with the session.
		defer close(watching)
		select {
		case <-down:
			lost(errors.Join(errors.New("connection lost"), nc.LastError()))
		case <-subscribed.Done():
		}
	}()
	defer func() {
		lost(nil)
		<-watching
	}()
	pull, err := s.setUp(subscribed, nc)
	if err != nil {
		return errors.Join(err, context.Cause(subscribed))
	}
	if err := s.awaitEarlier(subscribed, pull); err != nil {
		return errors.Join(err, context.Cause(subscribed))
	}
	s.Connected(subscribed)
	for {
		batch, err := gather(subscribed, pull, s.BatchOr())
		if err != nil {
			return errors.Join(err, context.Cause(subscribed))
		}
		if err := s.attend(subscribed, nc, batch, handle); err != nil {
			return errors.Join(err, context.Cause(subscribed))
		}
	}
}

// awaitEarlier waits until the server delivers again what a bridge has left unacknowledged that has
// died: before that, it would deliver what is behind. It does so after ackWait at the latest,
// since other bridges may have work that is theirs. Only an inlet needs the order.
func (s *consumed) awaitEarlier(ctx context.Context, pull jetstream.Consumer) error {
	if s.Inlet == "" {
		return nil
	}
	for began := time.Now(); ; {
		info, err := pull.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at the consumer: %w", err)
		}
		if info.NumAckPending == 0 || time.Since(began) > ackWait {
			return nil
		}
		if !wait.Sleep(ctx, earlierPause) {
			return ctx.Err()
		}
	}
}

// Find implements [source.Finder].
func (s *consumed) Find(ctx context.Context) error {
	down := make(chan struct{})
	nc, err := s.config.Connect(ctx, func() { close(down) })
	if err != nil {
		return err
	}
	defer func() {
		nc.Close()
		<-down
	}()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.Stream(ctx, s.Stream); err != nil {
		return fmt.Errorf("look for stream %s: %w", s.Stream, err)
	}
	return nil
}

// setUp makes the streams that are missing, and the consumer.
func (s *consumed) setUp(ctx context.Context, nc *natsgo.Conn) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, source.SetUpTimeout)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream := s.Stream
	if s.Inlet == "" {
		if _, err := makeStream(ctx, js, source.DeadTopic(s.Topic)); err != nil {
			return nil, err
		}
		if stream, err = makeStream(ctx, js, s.Topic); err != nil {
			return nil, err
		}
	}
	pull, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: s.Group, FilterSubject: s.Topic,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxAckPending: pendingBatches * s.BatchOr(), MaxDeliver: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer on stream %s: %w", stream, err)
	}
	return pull, nil
}

// originOf names a message by its time, too: a stream that is made again begins at the first sequence. What
// the headers tell the server is not for a consumer.
func originOf(m jetstream.Msg, meta *jetstream.MsgMetadata) source.Origin {
	o := source.Origin{
		Position: fmt.Sprintf("%s/%d@%d", meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixMilli()), Topic: m.Subject(), At: meta.Timestamp,
	}
	for name, values := range m.Headers() {
		if strings.HasPrefix(strings.ToLower(name), "nats-") {
			continue
		}
		for _, value := range values {
			o.Add(name, value)
		}
	}
	return o
}

// makeStream returns the name of the stream that binds the subject.
func makeStream(ctx context.Context, js jetstream.JetStream, subject string) (string, error) {
	name, err := js.StreamNameBySubject(ctx, subject)
	if err == nil {
		return name, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", fmt.Errorf("look for the stream of %s: %w", subject, err)
	}
	name = strings.ReplaceAll(subject, ".", "-")
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage,
		Retention:   jetstream.WorkQueuePolicy, // What is acknowledged goes.
		Description: "compensations of delaybridge",
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return "", fmt.Errorf("make stream %s: %w", name, err)
	}
	return name, nil
}

// gather waits for one message and takes those with it that wait, too.
func gather(ctx context.Context, pull jetstream.Consumer, most int) ([]jetstream.Msg, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, pollTime)
		first, err := pull.Fetch(1, jetstream.FetchContext(wait))
		batch, err := collect(first, err)
		cancel()
		if ctx.Err() != nil {
			giveBack(batch)
			return nil, ctx.Err()
		}
		if len(batch) == 0 {
			if err != nil && !errors.Is(err, natsgo.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
				return nil, fmt.Errorf("fetch: %w", err)
			}
			continue
		}
		more, err := pull.FetchNoWait(most - 1)
		rest, err := collect(more, err)
		if err != nil && len(rest) == 0 && !errors.Is(err, jetstream.ErrNoMessages) {
			return batch, nil // A lasting error comes again.
		}
		return append(batch, rest...), nil
	}
}

func collect(messages jetstream.MessageBatch, err error) ([]jetstream.Msg, error) {
	if err != nil {
		return nil, err
	}
	var batch []jetstream.Msg
	for m := range messages.Messages() {
		batch = append(batch, m)
	}
	return batch, messages.Error()
}

// attend keeps telling the server that the batch is in work.
func (s *consumed) attend(ctx context.Context, nc *natsgo.Conn, batch []jetstream.Msg, handle source.Handler) error {
	list := make([]*source.Delivery, len(batch))
	for i, m := range batch {
		meta, err := m.Metadata()
		list[i] = &source.Delivery{Body: m.Data(), Redelivered: err != nil || meta.NumDelivered > 1}
		if s.Inlet != "" && err == nil {
			list[i].Origin = originOf(m, meta)
			s.TellWaits(int64(meta.NumPending))
		}
	}
	defer source.Beat(ackWait/3, func() {
		for _, m := range batch {
			_ = m.InProgress() // If it fails, the message comes again.
		}
	})()
	err := source.Attend(ctx, list, handle, func(ctx context.Context, indices []int) error {
		for _, i := range indices {
			if err := batch[i].Ack(); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
		}
		return nc.FlushWithContext(ctx)
	})
	if err != nil {
		giveBack(batch)
	}
	return err
}

// giveBack has the server deliver the messages again at once. Without it, it does so after ackWait.
func giveBack(batch []jetstream.Msg) {
	for _, m := range batch {
		_ = m.Nak() // What is acknowledged already stays so.
	}
}
