package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// All flights of a connection together keep about so many messages without
	// an ack: a stream refuses to queue more than 10,000. The share of a flight
	// shrinks as they get more, but no flight waits for another.
	windowAll   = 8192
	windowLeast = 16
	// windowBytes bounds the bodies that one flight keeps without an ack.
	windowBytes = 8 << 20
)

// state is how far a message has come.
type state uint8

const (
	unsent  state = iota
	sent          // handed to the client, no answer yet
	settled       // its outcome is known
)

// flight is one call to Publish. The caller's goroutine sends, the
// connection's goroutine settles.
type flight struct {
	batch []message.Message
	wake  chan struct{} // has room for one: the flight got below what its sender waits for

	mu       sync.Mutex
	over     bool // outcomes belong to the caller now
	outcomes []sinks.Outcome
	states   []state
	waiting  int // messages in state sent
	bytes    int // their bodies
	most     int // the sender waits until waiting is at the most this; -1: it does not wait
}

func newFlight(batch []message.Message) *flight {
	return &flight{
		batch: batch, wake: make(chan struct{}, 1), most: -1,
		outcomes: make([]sinks.Outcome, len(batch)), states: make([]state, len(batch)),
	}
}

// refuseInvalid settles what no NATS server could take.
func (f *flight) refuseInvalid() {
	f.mu.Lock()
	defer f.mu.Unlock()
	checked := ""
	for i := range f.batch {
		if f.batch[i].Topic == checked && checked != "" {
			continue
		}
		if err := message.CheckTopic(message.NATS, f.batch[i].Topic); err != nil {
			f.outcomes[i], f.states[i] = classify(err), settled
			continue
		}
		checked = f.batch[i].Topic
	}
}

// publish sends what is not settled, in order, waits for the acks, and returns
// the outcomes.
func (l *link) publish(ctx context.Context, f *flight) []sinks.Outcome {
	number, prefix := l.add(f)
	defer l.remove(number)
	err := l.send(ctx, f, prefix)
	if err == nil {
		err = f.await(ctx, l, 0)
	}
	if err == nil {
		l.explainNoResponders(ctx, f)
	}
	return f.end(err)
}

// send returns at the first error that is not about one message: what comes
// later in the batch must not overtake.
func (l *link) send(ctx context.Context, f *flight, prefix string) error {
	defer l.guard(ctx)()
	var w writer
	scratch := make([]byte, 0, len(prefix)+8)
	for i := range f.batch {
		if f.states[i] == settled { // as invalid; nobody else writes before it is sent
			continue
		}
		if err := f.await(ctx, l, max(windowAll/int(l.load.Load()), windowLeast)-1); err != nil {
			return err
		}
		f.begin(i)
		scratch = strconv.AppendInt(append(scratch[:0], prefix...), int64(i), 10)
		err := l.nc.PublishMsg(w.encode(&f.batch[i], string(scratch)))
		if err == nil {
			continue
		}
		outcome := classify(err)
		f.settle(i, outcome)
		if outcome.Class != sinks.Permanent {
			l.abort() // part of it may be in the client's buffer, and nothing may follow
			if l.root.Err() != nil {
				return errClosed
			}
			return err
		}
	}
	return nil
}

// begin marks a message as sent before it is: its ack may be quick.
func (f *flight) begin(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[i] = sent
	f.waiting++
	f.bytes += len(f.batch[i].Body)
}

// await waits until at the most so many messages wait for an ack.
func (f *flight) await(ctx context.Context, l *link, most int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.mu.Lock()
	ready := f.waiting <= most && f.bytes <= windowBytes
	if !ready {
		f.most = most / 2 // wake up for a good number of them
	}
	f.mu.Unlock()
	if ready {
		return nil
	}
	select {
	case <-f.wake:
		return nil
	case <-l.down:
		return l.cause()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cause is why the connection is down.
func (l *link) cause() error {
	if l.root.Err() != nil {
		return errClosed
	}
	if err := l.nc.LastError(); err != nil {
		return fmt.Errorf("connection to NATS ended: %w", err)
	}
	return natsgo.ErrConnectionClosed
}

// settle records an answer, unless the message has one or the flight is over.
func (f *flight) settle(i int, outcome sinks.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || i < 0 || i >= len(f.states) || f.states[i] != sent {
		return
	}
	f.states[i], f.outcomes[i] = settled, outcome
	f.waiting--
	f.bytes -= len(f.batch[i].Body)
	if f.waiting <= f.most && f.bytes <= windowBytes {
		f.most = -1
		f.wake <- struct{}{} // never blocks: once for each await
	}
}

// deny settles all messages of a subject that we may not publish to.
func (f *flight) deny(subject string, err error) {
	for i := range f.batch {
		if f.batch[i].Topic == subject {
			f.settle(i, classify(err))
		}
	}
}

// end closes the flight. Without an answer what was sent is Unknown and what
// was not is Unavailable.
func (f *flight) end(err error) []sinks.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for i, s := range f.states {
		switch s {
		case sent:
			f.outcomes[i] = sinks.Failed(sinks.Unknown, why(err), err)
		case unsent:
			f.outcomes[i] = sinks.Failed(sinks.Unavailable, why(err), err)
		case settled:
		}
	}
	return f.outcomes
}

// explainNoResponders asks why nobody listened to a subject: no stream, or a
// JetStream without a leader. One answer serves all messages of a subject, and
// after one question without an answer no other is asked.
func (l *link) explainNoResponders(ctx context.Context, f *flight) {
	var known map[string]sinks.Outcome
	for i := range f.outcomes {
		if !errors.Is(f.outcomes[i].Err, errNoResponders) {
			continue
		}
		subject := f.batch[i].Topic
		outcome, ok := known[subject]
		if !ok {
			err := l.streamExists(ctx, subject)
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return
			}
			if known == nil {
				known = map[string]sinks.Outcome{}
			}
			outcome = f.outcomes[i]
			if err != nil {
				outcome = classify(fmt.Errorf("subject %s: %w", subject, err))
			}
			known[subject] = outcome
		}
		f.outcomes[i] = outcome
	}
}

// writer turns messages into the client's form. Its memory is used again for
// the next message: the client copies.
type writer struct {
	msg    natsgo.Msg
	values []string
}

func (w *writer) encode(m *message.Message, reply string) *natsgo.Msg {
	headers := m.PublishedHeaders()
	if w.msg.Header == nil {
		w.msg.Header = make(natsgo.Header, len(headers)+1)
	}
	clear(w.msg.Header)
	w.values = append(w.values[:0], m.ID+":"+m.Token)
	for _, header := range headers {
		w.values = append(w.values, header.Value)
	}
	// The token's width is fixed, so no two pairs of ID and token look alike.
	w.msg.Header[natsgo.MsgIdHdr] = w.values[:1:1]
	for i, header := range headers {
		w.msg.Header[header.Name] = w.values[i+1 : i+2 : i+2]
	}
	w.msg.Subject, w.msg.Reply, w.msg.Data = m.Topic, reply, m.Body
	return &w.msg
}
