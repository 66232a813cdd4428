package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// piece is what one call to Publish brings to one lane. Its fields below the
// line are guarded by Sink.mu.
type piece struct {
	lane  laneKey
	batch []message.Message
	index []int // of the piece's messages in the batch, in order
	sizes []int
	done  chan struct{} // closed when each message has its outcome
	// -
	outcomes  []sinks.Outcome // by position in index
	next      int             // the first message that no request has taken
	left      int             // messages without an outcome
	withdrawn bool            // its call has returned
	flight    *flight         // the last request with messages of the piece
}

// item is one message of a piece.
type item struct {
	piece    *piece
	position int
}

func (i item) message() *message.Message { return &i.piece.batch[i.piece.index[i.position]] }

// flight is one request at a broker.
type flight struct {
	once sync.Once
	// encoded is closed when the messages' bytes are no longer needed.
	encoded chan struct{}
}

func (f *flight) markEncoded() { f.once.Do(func() { close(f.encoded) }) }

func newPiece(lane laneKey, batch []message.Message) *piece {
	return &piece{lane: lane, batch: batch, done: make(chan struct{})}
}

func (p *piece) add(index int) {
	p.index = append(p.index, index)
	p.sizes = append(p.sizes, recordSize(&p.batch[index]))
	p.left++
}

// settle gives one message its outcome. Callers hold Sink.mu.
func (p *piece) settle(position int, outcome sinks.Outcome) {
	p.outcomes[position] = outcome
	p.left--
	if p.left == 0 {
		close(p.done)
	}
}

// wait returns the outcomes of the piece, by position, when they are known or ctx ends.
func (s *Sink) wait(ctx context.Context, p *piece) []sinks.Outcome {
	select {
	case <-p.done:
		return p.outcomes
	case <-ctx.Done():
	}
	outcomes, under := s.withdraw(p)
	if under != nil {
		// Encoding takes a millisecond and waits for nobody; the bytes are the caller's after that.
		<-under.encoded
	}
	return outcomes
}

// withdraw takes a piece back as far as it has not been handed over.
func (s *Sink) withdraw(p *piece) ([]sinks.Outcome, *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.withdrawn = true
	if l := s.lanes[p.lane]; l != nil {
		l.drop(p)
	}
	outcomes := make([]sinks.Outcome, len(p.outcomes))
	copy(outcomes, p.outcomes)
	return outcomes, p.flight
}

// notHandedOver is the outcome of a message while no request has it.
func notHandedOver() sinks.Outcome {
	return sinks.Failed(sinks.Unavailable, sinks.ReasonTimeout,
		fmt.Errorf("not sent in time: %w", context.DeadlineExceeded))
}

// handedOver is the outcome of a message while a request has it.
func handedOver() sinks.Outcome {
	return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout,
		fmt.Errorf("not acknowledged in time: %w", context.DeadlineExceeded))
}
