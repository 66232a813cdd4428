package nats

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// The way of a batch. Publish makes a submission of it, in whose goroutine run takes what is
// ready, at first the first message of each chain; send encodes it and gives it to the
// client, under a number that the reply subject carries. JetStream's answer comes to
// onAck, in the client's goroutine, by that number; parseAck makes an outcome of it,
// settle reports it and makes the next message of the chain ready. The submission is over when
// all have an outcome, or else gives them one in end.

// runMost is how many messages a submission hands over before another has its turn.
const runMost = 64

// submission is one of Publish.
type submission struct {
	connection *connection
	batch      []message.Message
	chains     *sinks.Chains
	outcomes   *sinks.Outcomes
	ready      chan int    // may be handed over, in this order; it has room for the whole batch
	returned   atomic.Bool // run has returned, and none of its messages is in the client
}

// publication is a message that was handed to the client and has no answer.
type publication struct {
	submission *submission
	index      int
	number     uint64 // which its answer bears
	since      uint64 // from which tick of the connection on its time counts
}

// Publish implements [sinks.Sink].
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	if len(batch) == 0 {
		return
	}
	dialing, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	defer cancel()
	l, err := s.connection.Get(dialing, false)
	if err != nil {
		outcomes.Rest(sinks.Outcome{Class: sinks.Unavailable, Reason: why(err), Err: err, Whole: ctx.Err() == nil})
		return
	}
	c := &submission{connection: l, batch: batch, chains: sinks.NewChains(batch), outcomes: outcomes, ready: make(chan int, len(batch))}
	if err := c.run(ctx); err != nil {
		c.end(err, ctx.Err() == nil)
	}
}

// run hands over messages as they become ready, until all have an outcome; else it returns why the
// rest has none.
func (c *submission) run(ctx context.Context) error {
	defer c.returned.Store(true)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, c.breakOff) })()
	for _, head := range c.chains.Heads() {
		c.ready <- head
	}
	for ctx.Err() == nil {
		select {
		case next := <-c.ready:
			if err := c.handOver(ctx, next); err != nil {
				return err
			}
		case <-c.outcomes.Done():
			return nil
		case <-c.connection.down:
			return c.connection.Err()
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// handOver hands over a run of messages, when it is the submission's turn. Its error is not
// about one of them: nothing may follow.
func (c *submission) handOver(ctx context.Context, next int) error {
	l := c.connection
	select {
	case l.turn <- struct{}{}:
	case <-l.down:
		return l.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	for left := runMost - 1; ; left-- {
		if err := c.send(ctx, next); err != nil || left == 0 || len(c.ready) == 0 {
			return err
		}
		next = <-c.ready
	}
}

// send hands one message to the client.
func (c *submission) send(ctx context.Context, i int) error {
	m, l := &c.batch[i], c.connection
	if m.Topic != l.writer.msg.Subject { // Most are like the one before.
		if err := message.CheckTopic(message.NATS, m.Topic); err != nil {
			c.settle(i, classify(err))
			return nil
		}
	}
	number, err := l.await(ctx, publication{submission: c, index: i})
	if err != nil {
		return err
	}
	err = l.nc.PublishMsg(l.writer.encode(m, l.inbox, number))
	l.writer.msg.Data = nil // Nothing of the batch stays behind.
	if err != nil {
		return l.refused(number, err)
	}
	return nil
}

// await numbers a message that is about to be sent, since its answer may be quick; first it waits while
// too much has no answer.
func (c *connection) await(ctx context.Context, w publication) (number uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.waiting.count == waitingMost {
		c.mu.Unlock()
		err = c.pause(ctx)
		if c.mu.Lock(); err != nil {
			return 0, err
		}
	}
	w.since = c.ticks
	return c.waiting.add(w), nil
}

// writer turns messages into the client's form. Its memory is used again for
// the next message: the client copies.
type writer struct {
	msg     natsgo.Msg
	headers []message.Header
	values  []string // of the headers; msg has them in slices of one
	reply   []byte
}

func newWriter() writer { return writer{msg: natsgo.Msg{Header: natsgo.Header{}}} }

func (w *writer) encode(m *message.Message, inbox string, number uint64) *natsgo.Msg {
	// The token's width is fixed, so no two pairs of ID and token look alike.
	w.headers = append(w.headers[:0], message.Header{Name: natsgo.MsgIdHdr, Value: m.ID + ":" + m.Token})
	w.headers = m.AppendHeaders(w.headers)
	w.values = slices.Grow(w.values[:0], len(w.headers))
	clear(w.msg.Header)
	for i, header := range w.headers {
		w.values = append(w.values, header.Value)
		w.msg.Header[header.Name] = w.values[i : i+1 : i+1]
	}
	w.reply = strconv.AppendUint(append(w.reply[:0], inbox...), number, 10)
	w.msg.Subject, w.msg.Reply, w.msg.Data = m.Topic, string(w.reply), m.Body
	return &w.msg
}

// onAck hears all answers of a connection, one after the other: it must not block.
func (c *connection) onAck(m *natsgo.Msg) {
	number, _ := strconv.ParseUint(m.Subject[len(c.inbox):], 10, 64)
	outcome := parseAck(m, &c.stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached = max(c.reached, number)
	if errors.Is(outcome.Err, errNoResponders) {
		c.explain(number)
	} else {
		c.settle(number, outcome)
	}
	if len(c.denied.open) > 0 {
		c.judgeDenials()
	}
}

// settle ends the wait for an answer, if it has not ended. It is called with c.mu held.
func (c *connection) settle(number uint64, outcome sinks.Outcome) {
	if w, ok := c.waiting.remove(number); ok {
		w.submission.settle(w.index, outcome)
	}
}

// settle reports an outcome, and makes the next message of the chain ready.
func (c *submission) settle(i int, outcome sinks.Outcome) {
	if next, ok := c.chains.Settle(i, outcome, c.outcomes); ok {
		c.ready <- next
	}
}
