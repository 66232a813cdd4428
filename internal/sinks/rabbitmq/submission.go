package rabbitmq

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// submission is one call of Publish: it submits each message to the channel of
// its route when its turn in its chain has come.
type submission struct {
	connection   *connection
	batch        []message.Message
	publications []publication // by index
	chains       *sinks.Chains
	outcomes     *sinks.Outcomes
	channels     map[string]*channel // by topic; those that were given a message

	cause error // why the call ended early; set before isOver
	over  atomic.Bool
}

// publication is one message on its way to the broker. The channel that it was
// submitted to owns it until it is settled.
type publication struct {
	submission *submission // nil once the call ended without the broker's answer
	index      int
	topic      string
	size       int            // of the body
	properties []byte         // encoded
	body       []byte         // from when it is submitted until it is settled: the bytes are the caller's
	refusal    *sinks.Outcome // why it cannot be handed over at all
	channel    *channel

	since      time.Time // when it was submitted, or handed over, or when the connection last came nearer to it
	start, end uint64    // its bytes on the wire
	isAlone    bool      // handed over to a channel that held no other
	answer     method    // methodAck or methodNack, once the broker has answered
	returned   error     // it came back
}

func newSubmission(connection *connection, batch []message.Message, outcomes *sinks.Outcomes) *submission {
	s := &submission{
		connection: connection, batch: batch, publications: make([]publication, len(batch)),
		chains: sinks.NewChains(batch), outcomes: outcomes, channels: map[string]*channel{},
	}
	encoder := newEncoder(len(batch), connection.amqp.Config.FrameSize)
	for i := range batch {
		p, m := &s.publications[i], &batch[i]
		p.submission, p.index, p.topic, p.size = s, i, m.Topic, len(m.Body)
		p.properties, p.refusal = encoder.properties(m)
	}
	return s
}

// begin submits the first message of each chain, in the order of the batch, but
// those last that have to wait for a channel. That wait ends with ctx.
func (s *submission) begin(ctx context.Context) {
	var waiting []int
	for _, head := range s.chains.Heads() {
		i, ok := s.skipRefused(head)
		if !ok {
			continue
		}
		channel, _, err := s.connection.channelFor(s.publications[i].topic)
		if channel == nil && err == nil {
			waiting = append(waiting, i)
			continue
		}
		s.start(i, channel, err)
	}
	for _, i := range waiting {
		channel, err := s.connection.awaitChannel(ctx, s.publications[i].topic)
		s.start(i, channel, err)
	}
}

// skipRefused reports the messages at the beginning of a chain that cannot be
// handed over at all, and returns the first of the others.
func (s *submission) skipRefused(i int) (first int, ok bool) {
	for ok = true; ok && s.publications[i].refusal != nil; i, ok = s.chains.Next(i) {
		s.outcomes.Report(i, *s.publications[i].refusal)
	}
	return i, ok
}

// start submits the first message of a chain.
func (s *submission) start(i int, channel *channel, err error) {
	if err != nil {
		s.settle(i, classify(notHanded, err))
		return
	}
	p := &s.publications[i]
	p.channel = channel
	s.channels[p.topic] = channel
	if outcome := s.submit(i); outcome != nil {
		s.settle(i, *outcome)
	}
}

// submit gives a message to its channel, or settles it without one.
func (s *submission) submit(i int) *sinks.Outcome {
	p := &s.publications[i]
	if p.refusal != nil {
		return p.refusal
	}
	p.body = s.batch[i].Body
	err := p.channel.submit(p)
	if err == nil {
		return nil
	}
	outcome := classify(notHanded, err)
	return &outcome
}

// settle reports the outcome of a message and continues its chain.
func (s *submission) settle(i int, outcome sinks.Outcome) {
	for {
		s.publications[i].body = nil
		next, ok := s.chains.Settle(i, outcome, s.outcomes)
		if !ok {
			break
		}
		s.publications[next].channel = s.publications[i].channel
		i = next
		undone := s.submit(i)
		if undone == nil {
			return
		}
		outcome = *undone
	}
	if channel := s.publications[i].channel; channel != nil {
		s.connection.leave(channel)
	}
}

// end settles the messages that have no outcome yet; the channels report them soon.
func (s *submission) end(cause error) {
	s.cause = cause
	s.over.Store(true)
	for _, channel := range s.channels {
		channel.lookThrough()
	}
}
