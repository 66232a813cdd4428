package rabbitmq

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// provenAtFirst is a size that every broker takes, we assume. A larger message
	// than any before goes alone.
	provenAtFirst = 4 << 10
	// carefulFor is how long all messages go alone after the broker closed the
	// shared channel over one of them.
	carefulFor = 30 * time.Second
	// checkEvery is how often we ask whether the exchange exists.
	checkEvery = time.Second
)

// publisher publishes the messages of a delay queue on one session: over a
// link that its callers share, or, where a message might make the broker close
// the channel, over a second one that holds no other message. A channel that
// closes over a single message tells exactly which one was refused, and
// nobody else's confirmations are lost.
type publisher struct {
	session *session

	opening gate // guards shared
	shared  *link

	single  gate // guards side, checked; held while a message goes alone
	side    *link
	checked time.Time

	proven  atomic.Int64 // the largest body that the broker took
	careful atomic.Int64 // until when all messages go alone, Unix nanoseconds
}

// gate is a lock that can be waited for under a ctx.
type gate chan struct{}

func (g gate) lock(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	}
}

func (g gate) unlock() { <-g }

func newPublisher(s *session) *publisher {
	p := &publisher{session: s, opening: make(gate, 1), single: make(gate, 1)}
	p.proven.Store(provenAtFirst)
	return p
}

// publish fills the part's outcomes.
func (p *publisher) publish(ctx context.Context, part *part) {
	if p.session.wire.isBlocked.Load() {
		part.fill(classify(notHanded, errBlocked))
		return
	}
	if err := p.checkExchange(ctx); err != nil {
		part.fill(classify(notHanded, err))
		return
	}
	l, err := p.join(ctx)
	if err != nil {
		part.fill(classify(notHanded, err))
		return
	}
	defer l.leave()
	f := &flight{publisher: p, link: l, part: part}
	f.run(ctx)
	var exception *amqp.Error
	if l.channel.IsClosed() && !p.session.conn.IsClosed() && errors.As(l.end(), &exception) && exception.Server {
		p.careful.Store(time.Now().Add(carefulFor).UnixNano())
	}
}

// join returns the shared link, which the caller must leave.
func (p *publisher) join(ctx context.Context) (*link, error) {
	if err := p.opening.lock(ctx); err != nil {
		return nil, err
	}
	defer p.opening.unlock()
	var err error
	p.shared, err = p.use(ctx, p.shared)
	return p.shared, err
}

// joinSide is join for the link of single messages; p.single is held.
func (p *publisher) joinSide(ctx context.Context) (*link, error) {
	var err error
	p.side, err = p.use(ctx, p.side)
	return p.side, err
}

// use joins the link, or a new one where it takes no messages any more.
func (p *publisher) use(ctx context.Context, l *link) (*link, error) {
	if l != nil && l.join() {
		return l, nil
	}
	l, err := p.session.open(ctx)
	if err != nil {
		return nil, err
	}
	if !l.join() {
		return nil, l.end()
	}
	return l, nil
}

// checkExchange asks now and then whether the exchange exists: publishing to
// one that does not would close the channel under everybody's messages.
func (p *publisher) checkExchange(ctx context.Context) error {
	exchange := p.session.lane.sink.config.Exchange
	if exchange == "" {
		return nil // The default exchange always exists.
	}
	if err := p.single.lock(ctx); err != nil {
		return err
	}
	defer p.single.unlock()
	if time.Since(p.checked) < checkEvery {
		return nil
	}
	l, err := p.joinSide(ctx)
	if err != nil {
		return err
	}
	defer l.leave()
	err = p.session.call(ctx, func() error {
		// The kind and the flags of a passive declaration are ignored.
		return l.channel.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, true, false, false, false, nil)
	}, func() {})
	if err != nil {
		l.retire()
		return err
	}
	p.checked = time.Now()
	return nil
}

// isRisky reports whether a message of that size must go alone.
func (p *publisher) isRisky(size int) bool {
	return int64(size) > p.proven.Load() || time.Now().UnixNano() < p.careful.Load()
}

// alone publishes one message and waits for what becomes of it.
func (p *publisher) alone(ctx context.Context, topic string, publishing *amqp.Publishing) sinks.Outcome {
	if err := p.single.lock(ctx); err != nil {
		return classify(notHanded, err)
	}
	defer p.single.unlock()
	l, err := p.joinSide(ctx)
	if err != nil {
		return classify(notHanded, err)
	}
	defer l.leave()
	sent, outcome := l.deliver(0, topic, publishing)
	if sent == nil {
		return outcome
	}
	select {
	case <-sent.confirmation.Done():
	case <-ctx.Done():
		l.forget(sent)
		l.retire()
		return classify(handed, endOf(ctx))
	}
	outcome = l.settle(alone, sent)
	switch {
	case outcome.Class == sinks.Acknowledged:
		p.prove(int64(len(publishing.Body)))
	case l.channel.IsClosed() && p.careful.Load() > 0:
		p.careful.Store(time.Now().Add(carefulFor).UnixNano())
	}
	return outcome
}

// prove raises the size that the broker is known to take.
func (p *publisher) prove(size int64) {
	for {
		proven := p.proven.Load()
		if size <= proven || p.proven.CompareAndSwap(proven, size) {
			return
		}
	}
}
