package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// laneKey names a partition.
type laneKey struct {
	topic     string
	partition int
}

// lane is the one way to a partition. Its goroutine runs while its queue has
// messages, and has at most one request at the broker.
type lane struct {
	sink  *Sink
	key   laneKey
	queue []*piece // guarded by Sink.mu
}

// run delivers what is queued until nothing is left.
func (l *lane) run() {
	for batch := l.take(); batch != nil; batch = l.take() {
		if blocked := l.deliver(batch); blocked != nil {
			l.failQueue(blocked)
		}
	}
}

// take returns the next messages for one request, in the order of their
// arrival. With none left it removes the lane and returns nil.
func (l *lane) take() []item {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	var batch []item
	size := 0
	for len(l.queue) > 0 {
		p := l.queue[0]
		for ; p.next < len(p.index); p.next++ {
			if size += p.sizes[p.next]; size > maxRequestSize && len(batch) > 0 {
				return batch
			}
			batch = append(batch, item{p, p.next})
		}
		l.queue[0] = nil
		l.queue = l.queue[1:]
	}
	if batch == nil {
		delete(l.sink.lanes, l.key)
		l.sink.closeIfIdle()
	}
	return batch
}

// drop takes a piece out of the queue. Callers hold Sink.mu.
func (l *lane) drop(p *piece) {
	l.queue = slices.DeleteFunc(l.queue, func(queued *piece) bool { return queued == p })
}

// deliver hands messages over in order and gives each its outcome. Its error
// says why nothing that follows may be sent: it would overtake what failed.
func (l *lane) deliver(batch []item) (blocked error) {
	sent, reply := l.send(batch)
	switch {
	case len(sent) == 0:
		return nil
	case len(reply.refused) > 0:
		refused, rest := reply.split(sent)
		l.settle(refused, reply.outcome)
		if len(rest) == 0 {
			return nil
		}
		return l.deliver(rest)
	case reply.divisible && len(sent) > 1:
		half := len(sent) / 2
		if blocked := l.deliver(sent[:half]); blocked != nil {
			l.settle(sent[half:], l.sink.overtaking(blocked))
			return blocked
		}
		return l.deliver(sent[half:])
	}
	l.settle(sent, reply.outcome)
	if reply.outcome.Class == sinks.Unknown || reply.outcome.Class == sinks.Unavailable {
		return reply.outcome.Err
	}
	return nil
}

// settling is how often, and how long in all, a request that provably changed
// nothing is made again, because its partition is moving or was just made: some 300 ms.
const (
	settlingTries = 5
	settlingPause = 10 * time.Millisecond // doubled each time
)

// send has the broker store the messages. It asks again only where the earlier
// request provably changed nothing. It returns the messages that
// were in the last one: those withdrawn before are not.
func (l *lane) send(batch []item) (sent []item, last reply) {
	ctx, cancel := context.WithTimeout(l.sink.open, l.sink.config.PublishTimeout)
	defer cancel()
	topics, pause := l.sink.topics, settlingPause
	leader, err := topics.leader(ctx, l.key)
	if err != nil {
		return l.live(batch), l.sink.failure(err)
	}
	for try := 0; ; try++ {
		sent, last = l.request(ctx, leader, batch)
		if !last.doubtful() {
			return sent, last
		}
		topics.doubt(l.key.topic)
		if last.outcome.Class == sinks.Unknown || try == settlingTries {
			return sent, last
		}
		next, err := topics.leader(ctx, l.key)
		if err != nil || (next == leader && !last.settling()) || !sleep(ctx, pause) {
			return sent, last
		}
		leader, batch, pause = next, sent, 2*pause
	}
}

// sleep reports false where ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// request makes one request of one broker.
func (l *lane) request(ctx context.Context, leader string, batch []item) ([]item, reply) {
	conn, err := l.sink.brokers.acquire(ctx, leader)
	if err != nil {
		return l.live(batch), l.sink.failure(err)
	}
	defer l.sink.brokers.release(conn)
	batch, current := l.begin(batch)
	defer current.markEncoded()
	if len(batch) == 0 {
		return nil, reply{outcome: sinks.Acked()}
	}
	conn.wire.encoded = current.markEncoded
	reader := &records{batch: batch}
	response, err := conn.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: l.key.topic, Partition: l.key.partition, RequiredAcks: kafka.RequireAll, Records: reader,
	})
	if err == nil && reader.read != len(batch) {
		err = fmt.Errorf("kafka request has %d of %d messages", reader.read, len(batch))
	}
	if err != nil {
		return batch, l.sink.failure(fmt.Errorf("publish to kafka broker %s: %w", leader, err))
	}
	return batch, newReply(response, len(batch))
}

// live leaves out the messages whose calls have returned.
func (l *lane) live(batch []item) []item {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(batch), func(i item) bool { return i.piece.withdrawn })
}

// begin marks the live messages as handed over, from which point on only the
// broker knows. No message whose call has returned is read any more.
func (l *lane) begin(batch []item) ([]item, *flight) {
	current := &flight{encoded: make(chan struct{})}
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	batch = slices.DeleteFunc(slices.Clone(batch), func(i item) bool { return i.piece.withdrawn })
	outcome := handedOver()
	for _, i := range batch {
		i.piece.outcomes[i.position] = outcome
		i.piece.flight = current
	}
	return batch, current
}

func (l *lane) settle(batch []item, outcome sinks.Outcome) {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	for _, i := range batch {
		i.piece.settle(i.position, outcome)
	}
}

// failQueue gives up on all that was queued behind a message that failed.
func (l *lane) failQueue(blocked error) {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	outcome := l.sink.overtaking(blocked)
	for _, p := range l.queue {
		for ; p.next < len(p.index); p.next++ {
			p.settle(p.next, outcome)
		}
	}
	l.queue = nil
}
