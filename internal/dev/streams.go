package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/delay"
)

const (
	apiTimeout = 5 * time.Second
	// unsureFor is how long what was published before a stream was made may be on its way
	// to us after that. What is later yet, the bridge publishes again by itself.
	unsureFor = time.Second
	// knownMax bounds what is remembered of topics that have a stream.
	knownMax = 4096
	// madeByDev is the description of the streams.
	madeByDev = "made by bridge dev"
)

// Arrival is a message of the bridge that reached NATS. With minimal headers it has no Queue, and its uid in the place of
// the ID.
type Arrival struct {
	Queue, Topic, ID string
	DueAt            time.Time
	// At is when it arrived here, by the clock of Redis.
	At      time.Time
	Attempt int
}

// streamMaker sees every message that is published and makes a stream for those
// of the bridge that found none, one for each first token of a topic. It owns
// one goroutine, which ends with close.
//
// A publish without a stream stays unanswered while somebody listens, as we do.
// So the message is published again for the bridge, with its own reply address,
// once the stream is there; the broker drops it by its id if it was stored
// already. In these first milliseconds of a new stream, messages may pass each other.
type streamMaker struct {
	conn      *nats.Conn
	js        jetstream.JetStream
	sub       *nats.Subscription
	clock     *Clock
	onPublish func(Arrival)
	logger    *slog.Logger
	cancel    context.CancelFunc
	stopping  <-chan struct{} // closed by cancel
	done      sync.WaitGroup

	// known are topics that have a stream. The goroutine's own.
	known map[string]bool
	// unsure is until when a message may come that was published before the last
	// stream was made. The goroutine's own.
	unsure time.Time
}

func startStreamMaker(ctx context.Context, s *natsServer, clock *Clock, onPublish func(Arrival), logger *slog.Logger) (*streamMaker, error) {
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.NoEcho(), nats.Name("delaybridge-dev"))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(apiTimeout))
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := makeInlet(ctx, js); err != nil {
		conn.Close()
		return nil, err
	}
	sub, err := conn.SubscribeSync(">")
	if err == nil {
		err = conn.FlushTimeout(apiTimeout) // What is published from now on is seen.
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // Close ends it.
	m := &streamMaker{
		conn: conn, js: js, sub: sub, clock: clock, onPublish: onPublish, logger: logger,
		cancel: cancel, stopping: ctx.Done(), known: map[string]bool{},
	}
	m.done.Go(func() { m.run(ctx) })
	return m, nil
}

// The stream of the inlet, the subject that it consumes, and those of its answers and of what it does
// not understand.
const (
	InletStream  = "inlet"
	InletSubject = InletStream + ".orders"
	InletReplies = InletStream + ".replies"
	InletDead    = InletStream + ".dead"
)

// makeInlet makes the stream of the inlet, unless an earlier run on the same data has.
func makeInlet(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: InletStream, Subjects: []string{InletStream, InletStream + ".>"}, Description: madeByDev,
	})
	if err != nil {
		return fmt.Errorf("make the inlet's stream: %w", err)
	}
	return nil
}

func (m *streamMaker) close() {
	m.cancel()
	m.done.Wait()
	m.conn.Close()
}

func (m *streamMaker) run(ctx context.Context) {
	for {
		msg, err := m.sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrSlowConsumer): // The bridge publishes again what we missed.
			continue
		case err != nil:
			return
		}
		if msg.Header.Get(delay.HeaderUID) == "" {
			continue
		}
		if m.ensure(ctx, msg.Subject) || time.Now().Before(m.unsure) {
			m.forward(msg)
		}
		if m.onPublish != nil {
			m.onPublish(m.arrival(msg.Subject, msg.Header))
		}
	}
}

// ensure makes the stream of a topic if there is none, and reports whether
// it did.
func (m *streamMaker) ensure(ctx context.Context, topic string) (made bool) {
	if m.known[topic] {
		return false
	}
	if len(m.known) >= knownMax {
		clear(m.known)
	}
	_, err := m.js.StreamNameBySubject(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = makeStream(ctx, m.js, topic)
		made = err == nil
	}
	if err != nil {
		m.logger.Warn("stream not made", "event", "stream", "topic", topic, "err", err)
		return false
	}
	m.known[topic] = true
	if made { // The server answers us by another way than it sends us what is published.
		m.unsure = time.Now().Add(unsureFor)
	}
	return made
}

// forward publishes a message again; its answer goes to the first publisher.
func (m *streamMaker) forward(msg *nats.Msg) {
	again := &nats.Msg{Subject: msg.Subject, Reply: msg.Reply, Header: msg.Header, Data: msg.Data}
	if err := m.conn.PublishMsg(again); err != nil {
		m.logger.Warn("message not passed on to its new stream", "event", "stream", "topic", msg.Subject, "err", err)
	}
}

// makeStream makes a stream for the first token of a topic or, where another
// stream has a part of that, for this topic alone. It returns the stream's name.
func makeStream(ctx context.Context, js jetstream.JetStream, topic string) (string, error) {
	token, _, _ := strings.Cut(topic, ".")
	wide := jetstream.StreamConfig{Name: streamName(token), Subjects: []string{token, token + ".>"}, Description: madeByDev}
	_, err := js.CreateStream(ctx, wide)
	if err == nil {
		return wide.Name, nil
	}
	alone := jetstream.StreamConfig{Name: streamName(topic), Subjects: []string{topic}, Description: madeByDev}
	if _, errAlone := js.CreateStream(ctx, alone); errAlone != nil {
		return "", fmt.Errorf("make stream: %w", err)
	}
	return alone.Name, nil
}

// streamName is the token itself, or something like it where a stream cannot be
// called so.
func streamName(token string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, token)
	if clean == token && len(token) <= nameMax {
		return token
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(token)) // It never fails.
	return clean[:min(len(clean), nameMax)] + "-" + strconv.FormatUint(uint64(hash.Sum32()), 16)
}

// nameMax keeps stream names, which are folder names, well below their limit.
const nameMax = 64

// follow makes the topic's stream, if there is none, and reads it from its
// present end until ctx ends.
func (m *streamMaker) follow(ctx context.Context, topic string, yield func(Arrival)) error {
	name, err := m.js.StreamNameBySubject(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		name, err = makeStream(ctx, m.js, topic)
	}
	if err != nil {
		return fmt.Errorf("follow %s: %w", topic, err)
	}
	consumer, err := m.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{topic}, DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", topic, err)
	}
	consuming, err := consumer.Consume(func(msg jetstream.Msg) { yield(m.arrival(msg.Subject(), msg.Headers())) })
	if err != nil {
		return fmt.Errorf("follow %s: %w", topic, err)
	}
	m.done.Go(func() {
		select {
		case <-ctx.Done():
		case <-m.stopping:
		}
		consuming.Stop()
		<-consuming.Closed()
	})
	return nil
}

// arrival reads the headers that the bridge adds.
func (m *streamMaker) arrival(topic string, header nats.Header) Arrival {
	d, _ := delay.ReadHeaders(header.Get) // Zero says enough.
	return Arrival{Queue: d.Queue, Topic: topic, ID: cmp.Or(d.ID, d.UID), DueAt: d.DueAt, At: m.clock.Now(), Attempt: d.Attempt}
}
