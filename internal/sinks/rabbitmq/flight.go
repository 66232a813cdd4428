package rabbitmq

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// part is one lane's share of a batch: its indices, in order.
type part struct {
	batch    []message.Message
	indices  []int
	outcomes []sinks.Outcome
}

func (p *part) fill(outcome sinks.Outcome) {
	for _, i := range p.indices {
		p.outcomes[i] = outcome
	}
}

// flight publishes one part over one link: it writes as far ahead as the
// window allows, and then settles what it wrote, in order.
type flight struct {
	publisher *publisher
	link      *link
	part      *part
	pending   []*sent // each holds a slot of the link
	gaveUp    bool
}

// run fills the outcomes of the part. After an error nothing more is written,
// so that no message overtakes an earlier one of its Key.
func (f *flight) run(ctx context.Context) {
	defer func() {
		f.settle(ctx, len(f.pending))
		if f.gaveUp {
			f.link.retire()
		}
	}()
	for n, index := range f.part.indices {
		if err := f.publish(ctx, index); err != nil {
			rest := part{indices: f.part.indices[n:], outcomes: f.part.outcomes}
			rest.fill(classify(notHanded, err))
			return
		}
	}
}

// publish writes one message, or sets its outcome. With an error nothing of it
// was handed over, and nothing after it can be.
func (f *flight) publish(ctx context.Context, index int) error {
	m := &f.part.batch[index]
	publishing, refused := newPublishing(m, f.publisher.session.conn.Config.FrameSize)
	if refused != nil {
		f.part.outcomes[index] = *refused
		return nil
	}
	if err := f.mayWrite(ctx); err != nil {
		return err
	}
	if f.publisher.isRisky(len(m.Body)) {
		f.settle(ctx, len(f.pending)) // Else it could overtake them.
		if f.gaveUp {
			return endOf(ctx)
		}
		f.part.outcomes[index] = f.publisher.alone(ctx, m.Topic, publishing)
		return nil
	}
	if err := f.reserve(ctx); err != nil {
		return err
	}
	sent, outcome := f.link.deliver(index, m.Topic, publishing)
	if sent == nil {
		f.link.release()
		f.part.outcomes[index] = outcome
		return nil
	}
	f.pending = append(f.pending, sent)
	return nil
}

// mayWrite waits for room on the wire, and says what forbids writing.
func (f *flight) mayWrite(ctx context.Context) error {
	s := f.publisher.session
	switch {
	case ctx.Err() != nil:
		return endOf(ctx)
	case f.link.channel.IsClosed():
		return f.link.end()
	case s.wire.isBlocked.Load():
		return errBlocked
	}
	return s.wire.await(ctx)
}

// reserve takes a slot of the window. A flight that holds slots frees its own
// first: flights that wait for each other's would wait for ever.
func (f *flight) reserve(ctx context.Context) error {
	for !f.link.tryReserve() {
		if len(f.pending) == 0 {
			return f.link.reserve(ctx)
		}
		if f.settle(ctx, 1); f.gaveUp {
			return endOf(ctx)
		}
	}
	return nil
}

// settle waits for the first count of the pending messages and sets their
// outcomes. When ctx has ended it gives up what is not confirmed yet.
func (f *flight) settle(ctx context.Context, count int) {
	for _, s := range f.pending[:count] {
		f.part.outcomes[s.index] = f.await(ctx, s)
	}
	f.pending = f.pending[count:]
}

func (f *flight) await(ctx context.Context, s *sent) sinks.Outcome {
	select {
	case <-s.confirmation.Done():
	default:
		select {
		case <-s.confirmation.Done():
		case <-ctx.Done():
			f.gaveUp = true // It keeps its slot, the link takes no more messages.
			f.link.forget(s)
			return classify(handed, endOf(ctx))
		}
	}
	outcome := f.link.settle(handed, s)
	f.link.release()
	return outcome
}
