// Package source is the contract of the sources of messages, one per kind of broker, and
// what they share.
//
// A [Source] delivers the messages of one topic of one broker, and acknowledges each only
// after the handler has done it. It consumes compensation messages, or what an inlet is
// asked. It makes the topic of compensation messages, and the one for those that can
// never be redone, the only topics that the bridge makes.
package source

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// BatchMax is how many deliveries a source hands over together at most.
const BatchMax = 100

// SetUpTimeout bounds making topics and queues.
const SetUpTimeout = 10 * time.Second

const (
	// firstPause and longPause bound the wait before deliveries are handed to
	// the handler again. Redis' return is noticed within the longer one.
	firstPause = 20 * time.Millisecond
	longPause  = 250 * time.Millisecond
	// firstDial and longDial bound the wait before the next connection.
	firstDial = 100 * time.Millisecond
	longDial  = 2 * time.Second
	// ackTimeout bounds acknowledging, also after the end of ctx.
	ackTimeout = 5 * time.Second
)

// Delivery is one message as the broker delivered it.
type Delivery struct {
	// Origin is only known for an inlet.
	Origin

	Body []byte
	// Redelivered says that the message may have been handled before.
	Redelivered bool

	// Kept belongs to the handler, from one call with this delivery to the next.
	Kept any
}

// Origin is what a message has at its broker besides its body.
type Origin struct {
	// Position names the message: the same in each delivery, and never that of another
	// one. "" if the broker has no such name.
	Position string
	// Key is the record's key, MessageID what its publisher has named it, and Topic where it
	// was published to, if that is not the source's topic alone; "" if there is none.
	Key, MessageID, Topic string
	// At is when it was published, if its publisher or the broker says so.
	At      time.Time
	Headers map[string]string
	// Twice is a header that it has more than once, "" if there is none.
	Twice string
}

// Add adds a header.
func (o *Origin) Add(name, value string) {
	if _, isTwice := o.Headers[name]; isTwice {
		o.Twice = name
	}
	if o.Headers == nil {
		o.Headers = map[string]string{}
	}
	o.Headers[name] = value
}

// Handler handles deliveries and returns one error for each, by index: nil if
// it may be acknowledged. The others are handed in again. It may change
// Redelivered, and must return soon after the end of ctx.
type Handler func(ctx context.Context, batch []*Delivery) []error

// Source delivers the messages of one topic at least once.
type Source interface {
	// Run connects, and reconnects after a loss, until ctx ends. It returns after
	// the handler has, when everything that the handler has done is acknowledged.
	// One call of the handler runs at a time. The handler gets refused messages
	// again, in the same order and before anything else that the source delivers
	// to this process, after a pause of 20 to 250 ms.
	Run(ctx context.Context, handle Handler)
}

// Finder is a source that can look for what it consumes. It consumes nothing and makes nothing.
type Finder interface {
	// Find returns an error if the topic is missing, or may not be read.
	Find(ctx context.Context) error
}

// Options are what all sources need.
type Options struct {
	// Topic is where the compensation messages are.
	Topic string
	// Group names the bridges that share the work: [Group] of prefix and queue.
	Group string
	// Ready returns an error while deliveries cannot be handled; nil means always
	// ready. A source whose broker counts deliveries calls it every 20 to 250 ms
	// before it takes the first one.
	Ready  func(ctx context.Context) error
	Logger *slog.Logger

	// Inlet is the name of the inlet; "" for compensation messages. The topic of an inlet
	// is made by its owner.
	Inlet string
	// Stream is the stream of an inlet's topic, where the broker has streams.
	Stream string
	// Batch is how many deliveries are handed over together at most; 0 means [BatchMax].
	Batch int
	// Waits is told how many messages wait behind those that were delivered, from time to
	// time; nil if nobody wants to know.
	Waits func(messages int64)
	// Session is told that a session has begun, or by an error, that there is none; nil if
	// nobody wants to know.
	Session func(err error)
}

// BatchOr returns the limit of a batch.
func (o *Options) BatchOr() int { return cmp.Or(o.Batch, BatchMax) }

// TellWaits tells how many messages wait.
func (o *Options) TellWaits(messages int64) {
	if o.Waits != nil {
		o.Waits(max(messages, 0))
	}
}

// tellSession tells whether there is a session.
func (o *Options) tellSession(err error) {
	if o.Session != nil {
		o.Session(err)
	}
}

// what names what is consumed, and the events of the log.
func (o *Options) what() (name, event string) {
	if o.Inlet != "" {
		return "inlet " + o.Inlet + " is", "inlet"
	}
	return "compensations are", "compensation_source"
}

// Group is the name of the bridges' group at the broker.
func Group(prefix, queue string) string {
	return "delaybridge-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_' // NATS takes little else.
	}, prefix+"-"+queue)
}

// DeadTopic returns the topic for messages that can never be redone.
func DeadTopic(topic string) string { return topic + ".dead" }

// HeaderText makes a header's value of a text for the dead topic: printable ASCII, at most that many bytes.
func HeaderText(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return strings.TrimSpace(text[:min(len(text), most)])
}

// Check reports what is missing.
func (o *Options) Check() error {
	if o.Topic == "" || o.Group == "" || o.Logger == nil {
		return errors.New("source: topic, group and logger are needed")
	}
	return nil
}

// Attend hands the batch to the handler until all of it is done or ctx ends.
// done acknowledges the deliveries with the given indices.
func Attend(ctx context.Context, batch []*Delivery, handle Handler, done func(context.Context, []int) error) error {
	pending := make([]int, len(batch))
	for i := range batch {
		pending[i] = i
	}
	for pause := (wait.Backoff{Initial: firstPause, Limit: longPause}); ; {
		asked := make([]*Delivery, len(pending))
		for n, i := range pending {
			asked[n] = batch[i]
		}
		errs := handle(ctx, asked)
		var handled, rest []int
		for n, i := range pending {
			if n < len(errs) && errs[n] == nil {
				handled = append(handled, i)
			} else {
				rest = append(rest, i)
			}
		}
		if len(handled) > 0 {
			pause.Reset()
			if err := acknowledge(ctx, handled, done); err != nil {
				return err
			}
		}
		if pending = rest; len(pending) == 0 {
			return nil
		}
		if !wait.Sleep(ctx, pause.Next()) {
			return ctx.Err()
		}
	}
}

// Beat calls tell at that interval to say that a batch is still being handled. It ends with stop.
func Beat(every time.Duration, tell func()) (stop func()) {
	finished, stopped := make(chan struct{}), make(chan struct{})
	go func() { // stop waits for it.
		defer close(stopped)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				tell()
			case <-finished:
				return
			}
		}
	}()
	return func() {
		close(finished)
		<-stopped
	}
}

// acknowledge works even if ctx has ended while the handler worked.
func acknowledge(ctx context.Context, handled []int, done func(context.Context, []int) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
	defer cancel()
	return done(ctx, handled)
}

// Reconnect runs sessions until ctx ends, with a pause after one that has failed.
func Reconnect(ctx context.Context, o *Options, session func(context.Context) error) {
	pause, failing := wait.Backoff{Initial: firstDial, Limit: longDial}, false
	for ctx.Err() == nil {
		began := time.Now()
		err := session(ctx)
		if ctx.Err() != nil {
			return
		}
		o.tellSession(err)
		if time.Since(began) > 10*longDial {
			failing = false
			pause.Reset()
		}
		level := slog.LevelWarn
		if failing {
			level = slog.LevelDebug // Logged once per outage.
		}
		failing = true
		what, event := o.what()
		o.Logger.Log(ctx, level, what+" not consumed", "event", event+"_failed", "topic", o.Topic, "err", err)
		if !wait.Sleep(ctx, pause.Next()) {
			return
		}
	}
}

// AwaitReady waits until deliveries can be handled; it returns false if ctx ended first.
func (o *Options) AwaitReady(ctx context.Context) bool {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	for o.Ready != nil && o.Ready(ctx) != nil {
		if !wait.Sleep(ctx, pause.Next()) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Connected logs and tells that a session has begun.
func (o *Options) Connected(ctx context.Context) {
	o.tellSession(nil)
	what, event := o.what()
	o.Logger.InfoContext(ctx, what+" consumed", "event", event+"_connected", "topic", o.Topic)
}
