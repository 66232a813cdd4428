package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// settling is how often, and how long in all, a request that provably changed
// nothing is made again, because its partition is moving or was just made: some 300 ms.
const (
	settlingTries = 5
	settlingPause = 10 * time.Millisecond // doubled each time
)

// send makes the broker store the messages. It repeats a request only if that
// provably changed nothing. It returns the messages of the last request,
// without those withdrawn before.
//
// Every wait has a bound: learning and reaching the leader may take the publish
// timeout, and the request ends when it makes no progress for as long.
func (s *sender) send(batch []publication) (sent []publication, last reply) {
	topics, pause := s.sink.topics, wait.Backoff{Initial: settlingPause, Limit: settlingPause << settlingTries}
	leader, err := s.leader()
	if err != nil {
		return batch, s.sink.failure(err)
	}
	for try := 0; ; try++ {
		sent, last = s.request(leader, batch)
		if !isFailure(last.outcome) {
			return sent, last
		}
		topics.doubt(s.partition.topic)
		if last.outcome.Class == sinks.Unknown || try == settlingTries {
			return sent, last
		}
		next, err := s.leader()
		if nobodyAnswers(err) {
			last.outcome.Whole = true
		}
		if err != nil || (next == leader && !last.settling()) || !wait.Sleep(s.sink.open, pause.Next()) {
			return sent, last
		}
		leader, batch = next, sent
	}
}

// leader returns the address of the partition's leader.
func (s *sender) leader() (string, error) {
	ctx, cancel := context.WithTimeout(s.sink.open, s.sink.config.PublishTimeout)
	defer cancel()
	return s.sink.topics.leader(ctx, s.partition)
}

// request makes one request of one broker.
func (s *sender) request(leader string, batch []publication) ([]publication, reply) {
	conn, err := s.connect(leader)
	if err != nil {
		return batch, s.sink.failure(err)
	}
	defer s.sink.brokers.release(conn)
	batch, encoded := s.sink.begin(batch)
	defer encoded()
	if len(batch) == 0 {
		return nil, reply{outcome: sinks.Acked()}
	}
	conn.wire.encoded = encoded
	reader := &records{batch: batch}
	answer, err := conn.produce(s.sink.open, s.partition, reader)
	if err == nil && reader.read != len(batch) {
		err = fmt.Errorf("kafka request has %d of %d messages", reader.read, len(batch))
	}
	if err != nil {
		return batch, s.sink.failure(fmt.Errorf("publish to kafka broker %s: %w", leader, err))
	}
	s.sink.brokers.throttle(conn, answer.throttle)
	return batch, newReply(answer, len(batch))
}

// connect returns a connection to the leader, when the broker's quota lets it send again.
func (s *sender) connect(leader string) (*conn, error) {
	ctx, cancel := context.WithTimeout(s.sink.open, s.sink.config.PublishTimeout)
	defer cancel()
	if err := s.sink.brokers.awaitQuota(ctx, leader); err != nil {
		return nil, err
	}
	return s.sink.brokers.acquire(ctx, leader)
}
