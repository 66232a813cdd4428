package kafka

import (
	"context"
	"errors"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var errClosed = errors.New("kafka sink is closed")

// anyPartition is the route of messages without a Key, behind their topic. It is none of
// those that messages with a Key have: they would wait with the others while it is closed,
// and then where their partition fails in another place.
const anyPartition = "/*"

// Route implements [sinks.Sink]. A message with a Key has a partition of its
// topic, and that is its route as soon as the topic's partitions are known; they
// are asked for when something is published to it. Until then the route is the
// topic. So the messages of a Key change their route once, from "topic" to "topic/3".
func (s *Sink) Route(m *message.Message) sinks.Route {
	if m.Key == "" {
		return sinks.Route(m.Topic + anyPartition)
	}
	if numbers := s.topics.partitions(m.Topic); len(numbers) > 0 {
		return partition{m.Topic, partitionOf(m.Key, numbers)}.route()
	}
	return sinks.Route(m.Topic)
}

// Publish implements [sinks.Sink]. The outcomes of a partition are reported when
// its broker has answered, whatever becomes of the others.
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	if len(batch) == 0 {
		return
	}
	c := newSubmission(batch, outcomes)
	if ctx.Err() == nil {
		s.place(ctx, c)
	}
	select {
	case <-outcomes.Done():
	case <-ctx.Done():
		s.withdraw(c)
	}
}

// place gives each message to the sender of its partition. Topics that must be
// asked for come last, so that they delay no other. What has no partition gets
// its outcome.
func (s *Sink) place(ctx context.Context, c *submission) {
	names, byTopic := sortByTopic(c.batch)
	var unknown []string
	for _, name := range names {
		if err := message.CheckTopic(message.Kafka, name); err != nil {
			c.settleAll(byTopic[name], sinks.Failed(sinks.Permanent, sinks.ReasonInvalid, err))
		} else if known := s.topics.fresh(name); known != nil {
			s.placeTopic(known, c, byTopic[name]) //nolint:contextcheck // a sender serves many submissions and lives in the sink's own context
		} else {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return
	}
	asking, cancel := s.untilClosed(ctx)
	defer cancel()
	asking, stop := context.WithTimeout(asking, s.config.PublishTimeout)
	defer stop()
	refreshed := s.topics.refresh(asking, unknown)
	for _, name := range unknown {
		known, err := s.topics.afterRefresh(name, refreshed)
		if err != nil {
			c.settleAll(byTopic[name], s.outcome(err))
			continue
		}
		s.placeTopic(known, c, byTopic[name]) //nolint:contextcheck // as above
	}
}

// sortByTopic lists the topics of a batch, in order of appearance, and the messages of each.
func sortByTopic(batch []message.Message) (names []string, byTopic map[string][]int) {
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

// placeTopic gives the messages of one topic to the senders of its partitions.
func (s *Sink) placeTopic(known *topic, c *submission, indices []int) {
	if known.err != nil {
		c.settleAll(indices, s.outcome(known.err))
		return
	}
	const undecided = -1
	keyless := undecided
	byPartition := make([][]publication, len(known.leaders))
	for _, i := range indices {
		m := &c.batch[i]
		number := keyless
		switch {
		case m.Key != "":
			number = partitionOf(m.Key, known.numbers)
		case keyless == undecided:
			// One for the whole submission: they have no order to keep, and one request
			// is cheaper than one for each partition.
			keyless = s.choose(m.Topic, known.leaders)
			number = keyless
		}
		byPartition[number] = append(byPartition[number], publication{submission: c, index: i, size: recordSize(m)})
	}
	s.enqueue(c.batch[indices[0]].Topic, byPartition)
}

// enqueue gives the messages to the senders of their partitions, and starts those
// that are not running. A queue holds only messages of submissions that have not
// returned, so its bound is theirs.
func (s *Sink) enqueue(topic string, byPartition [][]publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, items := range byPartition {
		if len(items) == 0 {
			continue
		}
		if s.closed {
			settle(items, sinks.FailedWhole(sinks.Unavailable, sinks.ReasonClosed, errClosed))
			continue
		}
		id := partition{topic, number}
		one := s.senders[id]
		if one == nil {
			one = &sender{sink: s, partition: id}
			s.senders[id] = one
			go one.run()
		}
		one.queue = append(one.queue, items...)
	}
}
