package kafka

import (
	"context"
	"errors"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var errClosed = errors.New("kafka sink is closed")

// Publish implements [sinks.Sink].
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i, outcome := range s.publish(ctx, batch) {
		outcomes.Report(i, outcome)
	}
}

// Route implements [sinks.Sink].
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (s *Sink) publish(ctx context.Context, batch []message.Message) []sinks.Outcome {
	ctx, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	defer cancel()
	outcomes := make([]sinks.Outcome, len(batch))
	if ctx.Err() != nil {
		sinks.Fill(outcomes, notHandedOver())
		return outcomes
	}
	pieces := s.route(ctx, batch, outcomes)
	for _, p := range pieces {
		for position, outcome := range s.wait(ctx, p) {
			outcomes[p.index[position]] = outcome
		}
	}
	return outcomes
}

// route puts each message into the lane of its partition. Topics that must be
// asked for come last, so that they delay no other. What cannot be routed gets
// its outcome.
func (s *Sink) route(ctx context.Context, batch []message.Message, outcomes []sinks.Outcome) []*piece {
	names, byTopic := group(batch)
	var pieces []*piece
	var unknown []string
	for _, name := range names {
		if err := message.CheckTopic(message.Kafka, name); err != nil {
			fill(outcomes, byTopic[name], sinks.Failed(sinks.Permanent, sinks.ReasonInvalid, err))
		} else if known := s.topics.fresh(name); known != nil {
			pieces = append(pieces, s.place(known, batch, byTopic[name], outcomes)...) //nolint:contextcheck // a lane serves many calls and lives in the sink's own context
		} else {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return pieces
	}
	asking, cancel := s.untilClosed(ctx)
	defer cancel()
	refreshed := s.topics.refresh(asking, unknown)
	for _, name := range unknown {
		known, err := s.topics.settled(name, refreshed)
		if err != nil {
			fill(outcomes, byTopic[name], s.outcome(err))
			continue
		}
		pieces = append(pieces, s.place(known, batch, byTopic[name], outcomes)...) //nolint:contextcheck // as above
	}
	return pieces
}

// group lists the topics of a batch, in order of appearance, and the messages of each.
func group(batch []message.Message) (names []string, byTopic map[string][]int) {
	byTopic = map[string][]int{}
	for i := range batch {
		name := batch[i].Topic
		if _, seen := byTopic[name]; !seen {
			names = append(names, name)
		}
		byTopic[name] = append(byTopic[name], i)
	}
	return names, byTopic
}

// place hands the messages of one topic to the lanes of their partitions.
func (s *Sink) place(known *topic, batch []message.Message, index []int, outcomes []sinks.Outcome) []*piece {
	if known.err != nil {
		fill(outcomes, index, s.outcome(known.err))
		return nil
	}
	choice := newPartitioner(known.leaders)
	byPartition := make([]*piece, len(known.leaders))
	var pieces []*piece
	for _, i := range index {
		partition := choice.choose(batch[i].Key)
		p := byPartition[partition]
		if p == nil {
			p = newPiece(laneKey{batch[i].Topic, partition}, batch)
			byPartition[partition] = p
			pieces = append(pieces, p)
		}
		p.add(i)
	}
	s.enqueue(pieces)
	return pieces
}

// enqueue gives each piece to its lane, and starts the lanes that are not running.
func (s *Sink) enqueue(pieces []*piece) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pieces {
		p.outcomes = make([]sinks.Outcome, len(p.index))
		sinks.Fill(p.outcomes, notHandedOver())
		if s.closed {
			sinks.Fill(p.outcomes, sinks.Failed(sinks.Unavailable, sinks.ReasonClosed, errClosed))
			p.left = 0
			close(p.done)
			continue
		}
		l := s.lanes[p.lane]
		if l == nil {
			l = &lane{sink: s, key: p.lane}
			s.lanes[p.lane] = l
			go l.run()
		}
		l.queue = append(l.queue, p)
	}
}

// outcome classifies an error, and says so where the sink's own end was its cause.
func (s *Sink) outcome(err error) sinks.Outcome {
	outcome := classify(err)
	if s.open.Err() != nil && (outcome.Class == sinks.Unknown || outcome.Class == sinks.Unavailable) {
		outcome.Reason = sinks.ReasonClosed
	}
	return outcome
}

func fill(outcomes []sinks.Outcome, index []int, outcome sinks.Outcome) {
	for _, i := range index {
		outcomes[i] = outcome
	}
}
