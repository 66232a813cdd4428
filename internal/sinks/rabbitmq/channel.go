package rabbitmq

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// pendingMax is how many messages of a channel may be unconfirmed. It is less
	// than what RabbitMQ lets its reader of a connection give to a channel that is
	// held back (400): past that the whole connection would stand still.
	pendingMax = 256
	// provenAtFirst is a size that every broker takes, we assume.
	provenAtFirst = 4 << 10
	// looks is how often within the publish timeout a channel looks at the time.
	looks = 8
)

// channel publishes the messages of one route over one connection, in the order
// in which they are submitted, and settles them in that order, too: a route
// fails or hangs as a whole. It opens an AMQP channel when it has a message and
// none is open.
//
// All but the queue belongs to the goroutine run, which never waits for the
// broker in a call.
type channel struct {
	connection *connection
	topic      string       // that it serves; guarded by the connection's mu
	isRetired  bool         // gets no more messages; guarded by the connection's mu
	users      atomic.Int64 // chains that have not ended
	wake       chan struct{}

	mu    sync.Mutex
	queue []*publication // submitted, and not handed over
	swept bool           // a call has ended early: look for its messages
	ended error          // why nothing is taken any more
	over  bool           // no longer in use: it ends

	open        *openChannel // nil while there is none
	pending     []*publication
	proven      proof
	confirmedAt time.Time        // the last time
	room        <-chan struct{}  // closed when the wire may have room; nil while it has
	lookAt      <-chan time.Time // see checkTime
}

// proof is what the broker has taken over the open channel: a message of the
// topic that is no larger will not make it close the channel. isExact is set once
// it has closed one over a message that was covered: then provenAtFirst is too
// much for it.
type proof struct {
	topic   string
	size    int
	isExact bool
}

// forgotten is the proof for the next channel that is opened.
func (p proof) forgotten() proof { return proof{isExact: p.isExact} }

func (p proof) covers(m *publication) bool { return m.topic == p.topic && m.size <= p.size }

func newChannel(c *connection) *channel {
	return &channel{connection: c, wake: make(chan struct{}, 1)}
}

// submit queues a message. After an error it is never handed over.
func (c *channel) submit(p *publication) error {
	p.since = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	c.queue = append(c.queue, p)
	c.swept = c.swept || p.submission.over.Load()
	c.rouse()
	return nil
}

// lookThrough has the messages of calls that have ended settled.
func (c *channel) lookThrough() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = true
	c.rouse()
}

func (c *channel) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// end closes the channel, which is no longer in use.
func (c *channel) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.rouse()
}

// isOver reports whether the channel is to end, and closes it then. What is pending
// nobody waits for any more.
func (c *channel) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over && c.open != nil {
		c.open.close()
	}
	return c.over
}

// run ends with the connection, and settles all that it still has then, or when the
// channel is one too many.
func (c *channel) run() {
	for !c.isOver() {
		c.hear()
		c.sweep()
		c.handOver()
		c.look()
		select {
		case <-c.wake:
		case <-c.room:
		case now := <-c.lookAt:
			c.checkTime(now)
		case <-c.connection.done:
			c.finish()
			return
		}
	}
}

// handOver publishes queued messages, as far as that is possible now.
func (c *channel) handOver() {
	if err := c.connection.refusal(); err != nil {
		c.refuse(classify(notHanded, err), func(*publication) bool { return true })
	}
	if err := c.ensureOpen(); err != nil {
		c.refuse(classify(notHanded, err), func(*publication) bool { return true })
	}
	for p := c.next(); p != nil; p = c.next() {
		c.publish(p)
	}
}

// ensureOpen has a channel opened where a message waits for one.
func (c *channel) ensureOpen() (err error) {
	c.mu.Lock()
	isNeeded := c.open == nil && len(c.queue) > 0
	c.mu.Unlock()
	if isNeeded {
		c.open, err = c.connection.mux.open(c.rouse)
	}
	return err
}

// next takes the first message from the queue, unless it has to wait.
func (c *channel) next() *publication {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room = nil
	if len(c.queue) == 0 || !c.isReady(c.queue[0]) {
		return nil
	}
	p := c.queue[0]
	c.queue = c.queue[1:]
	return p
}

func (c *channel) isReady(p *publication) bool {
	isAlone := len(c.pending) > 0 && (c.pending[0].isAlone || !c.proven.covers(p))
	if c.open == nil || !c.open.isReady || isAlone || len(c.pending) >= pendingMax {
		return false
	}
	c.room = c.connection.wire.full()
	return c.room == nil
}

func (c *channel) publish(p *publication) {
	p.isAlone = !c.proven.covers(p)
	p.since = time.Now()
	switch err := c.open.publish(c.connection, p); {
	case err == nil:
		c.pending = append(c.pending, p)
	case c.connection.wire.end(errLost) <= p.start:
		c.settle(p, classify(notHanded, c.connection.loss()))
	default:
		c.settle(p, classify(handed, c.connection.loss()))
	}
}

// hear does what the broker's events on the channel demand.
func (c *channel) hear() {
	if c.open == nil {
		return
	}
	for _, e := range c.open.take() {
		switch e.method {
		case methodConfirmOK:
			c.open.isReady = true
		case methodAck, methodNack:
			c.recordAnswer(e)
		case methodReturn:
			c.noteReturn(e.returned)
		case methodClose:
			c.settleAnswered()
			c.open.acceptClose()
			c.closed(e.exception)
			return
		default: // Nothing else becomes an event.
		}
	}
	c.settleAnswered()
}

// recordAnswer records an answer of the broker. The tags of pending messages are
// consecutive.
func (c *channel) recordAnswer(e event) {
	first := c.open.tag + 1 - uint64(len(c.pending))
	if e.tag < first || e.tag > c.open.tag {
		return
	}
	last := int(e.tag - first)
	from := last
	if e.isMultiple {
		from = 0
	}
	for _, p := range c.pending[from : last+1] {
		if p.answer == 0 {
			p.answer = e.method
		}
	}
}

// settleAnswered settles the messages from the first on that have an answer.
func (c *channel) settleAnswered() {
	count := 0
	for count < len(c.pending) && c.pending[count].answer != 0 {
		count++
	}
	if count == 0 {
		return
	}
	answered := c.pending[:count]
	c.pending = c.pending[count:]
	c.confirmedAt = time.Now()
	c.connection.confirmed.advance(answered[count-1].start, c.confirmedAt)
	for _, p := range answered {
		if p.answer == methodNack {
			c.holdBack(p.topic) // Before its caller knows: what that one publishes then is not behind it.
		}
		c.judge(p)
	}
}

// holdBack refuses what is queued behind a message that was nacked: each that is
// handed over may leave copies, in the queue or in others of the topic.
func (c *channel) holdBack(topic string) {
	c.refuse(classify(notHanded, errNacked), func(p *publication) bool { return p.topic == topic })
}

// judge settles a message that the broker has answered.
func (c *channel) judge(p *publication) {
	if p.isAlone {
		c.prove(p)
	}
	switch {
	case p.answer == methodNack:
		c.settle(p, classify(handed, errNacked))
	case p.returned != nil:
		c.settle(p, classify(handed, p.returned))
	default:
		c.settle(p, sinks.Acked())
	}
}

func (c *channel) prove(p *publication) {
	if c.proven.topic != p.topic {
		c.proven = c.proven.forgotten()
		c.proven.topic = p.topic
		if !c.proven.isExact {
			c.proven.size = provenAtFirst
		}
	}
	c.proven.size = max(c.proven.size, p.size)
}

func (c *channel) settle(p *publication, outcome sinks.Outcome) {
	if s := p.submission; s != nil {
		s.settle(p.index, outcome)
	}
}
