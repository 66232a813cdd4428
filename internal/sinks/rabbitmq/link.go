package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// window is how many messages of a channel may be unconfirmed.
const window = 1000

// link is an AMQP channel in confirm mode. Callers share it; each waits for
// its own confirmations.
//
// A channel on which somebody gave up waiting is retired: it takes no new
// messages and is closed when its last user leaves. So neither late returns nor
// the driver's bookkeeping of what is never confirmed outlive the trouble.
type link struct {
	session *session
	channel *amqp.Channel
	closed  chan *amqp.Error // from the driver: the cause, then closed
	slots   chan struct{}    // one token for each unconfirmed message
	// returns has room for the whole window, because the driver drops what it
	// cannot deliver. It is drained before a slot is given back.
	returns chan amqp.Return

	mu      sync.Mutex
	cause   error
	pending map[string][]*sent // by message-id
	users   int
	retired bool
}

// sent is a message that was given to a link and is not settled yet.
type sent struct {
	index        int // in its batch
	topic        string
	publishing   *amqp.Publishing
	start        uint64 // the wire's position before it
	confirmation *amqp.DeferredConfirmation
	returned     error // guarded by the link's mu, until it is forgotten
}

func newLink(s *session) (*link, error) {
	channel, err := s.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	l := &link{
		session: s, channel: channel,
		closed:  channel.NotifyClose(make(chan *amqp.Error, 1)),
		slots:   make(chan struct{}, window),
		returns: channel.NotifyReturn(make(chan amqp.Return, window)),
		pending: map[string][]*sent{},
	}
	if err := channel.Confirm(false); err != nil {
		_ = channel.Close()
		return nil, fmt.Errorf("ask for confirmations: %w", err)
	}
	return l, nil
}

// join makes the caller a user of the link, unless it takes no new messages.
func (l *link) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired || l.channel.IsClosed() {
		return false
	}
	l.users++
	return true
}

// leave ends what join began.
func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	if l.retired && l.users == 0 {
		l.session.goClose(l.channel)
	}
}

// retire is called by a user that gives up waiting.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
}

// reserve waits for a slot, which its caller gives back with release.
func (l *link) reserve(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	case err := <-l.closed:
		l.note(err)
		return l.end()
	case <-ctx.Done():
		return endOf(ctx)
	}
}

func (l *link) tryReserve() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *link) release() { <-l.slots }

// deliver gives a message to the connection. The caller settles what it
// returns; where that is nil, nothing is left to wait for and the outcome is set.
func (l *link) deliver(index int, topic string, p *amqp.Publishing) (*sent, sinks.Outcome) {
	m := &sent{index: index, topic: topic, publishing: p, start: l.session.wire.position()}
	l.mu.Lock()
	l.pending[p.MessageId] = append(l.pending[p.MessageId], m)
	l.mu.Unlock()
	var err error
	m.confirmation, err = l.channel.PublishWithDeferredConfirm(l.session.lane.sink.config.Exchange, topic, true, false, *p)
	if err == nil {
		return m, sinks.Outcome{}
	}
	l.forget(m)
	switch {
	case errors.Is(err, amqp.ErrClosed):
		// The driver says so before the message is complete.
		return nil, classify(notHanded, l.end())
	case l.session.wire.end(errLost) <= m.start:
		return nil, classify(notHanded, err)
	default:
		return nil, classify(handed, err)
	}
}

// settle returns what became of a message whose confirmation is done.
func (l *link) settle(s stage, m *sent) sinks.Outcome {
	l.forget(m)
	switch {
	case m.confirmation.Acked() && m.returned != nil:
		return classify(s, m.returned)
	case m.confirmation.Acked():
		return sinks.Acked()
	case !l.channel.IsClosed():
		return classify(s, errNacked)
	case l.session.conn.IsClosed() && l.session.wire.end(errLost) <= m.start:
		return classify(notHanded, l.end())
	default:
		return classify(s, l.end())
	}
}

// forget ends the wait for a message, whose returned is final then. The
// driver's one reader delivers a return before the acknowledgement that follows
// it, so the return of an acknowledged message is in the buffer by now, or was
// taken from there under the same lock.
func (l *link) forget(m *sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	id := m.publishing.MessageId
	rest := l.pending[id]
	if i := slices.Index(rest, m); i >= 0 {
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) == 0 {
		delete(l.pending, id)
	} else {
		l.pending[id] = rest
	}
}

// drain notes what the broker returned. l.mu is held.
func (l *link) drain() {
	for {
		select {
		case r, ok := <-l.returns:
			if !ok {
				return
			}
			l.attribute(&r)
		default:
			return
		}
	}
}

// attribute finds the message that was returned. Returns name no delivery tag,
// and messages of different Keys may have equal ids, so the message is the
// first that equals the return in all that we published: where several do, they
// are copies of each other to every consumer, and it does not matter which of
// them is published again. If none does, something on the way has changed the
// content; then no message of that id and topic is known to be stored.
func (l *link) attribute(r *amqp.Return) {
	for _, m := range l.pending[r.MessageId] {
		if !errors.Is(m.returned, errUnroutable) && m.topic == r.RoutingKey && isReturn(r, m.publishing) {
			m.returned = fmt.Errorf("%w: %d", errUnroutable, r.ReplyCode)
			return
		}
	}
	for _, m := range l.pending[r.MessageId] {
		if m.returned == nil && m.topic == r.RoutingKey {
			m.returned = errTwin
		}
	}
}

// note keeps the first cause of the channel's end.
func (l *link) note(err *amqp.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.cause == nil {
		l.cause = err
	}
}

// end returns why the channel, which is closed, was closed.
func (l *link) end() error {
	select {
	case err := <-l.closed:
		l.note(err)
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return fmt.Errorf("channel closed: %w", l.cause)
	}
	return errLost
}
