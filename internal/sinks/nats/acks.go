package nats

import (
	"strconv"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// acks finds the message that an answer is for. All answers of a connection
// come back on one inbox; their subjects name the call and the message.
type acks struct {
	prefix  string        // of the inbox
	drained chan struct{} // closed when no ack can come any more
	stream  string        // of the last ack; onAck's alone, which is not called twice at a time

	mu    sync.Mutex
	calls map[uint64]*call
	last  uint64
}

func newAcks() acks {
	return acks{prefix: natsgo.NewInbox() + ".", drained: make(chan struct{}), calls: map[uint64]*call{}}
}

// add makes the call known to onAck and returns the prefix of its subjects.
func (a *acks) add(f *call) (number uint64, prefix string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.calls[a.last] = f
	return a.last, a.prefix + strconv.FormatUint(a.last, 36) + "."
}

func (a *acks) remove(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls, number)
}

func (a *acks) all() []*call {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := make([]*call, 0, len(a.calls))
	for _, f := range a.calls {
		calls = append(calls, f)
	}
	return calls
}

// onAck hands an answer to its call. It must not block: all acks wait for it.
func (c *connection) onAck(m *natsgo.Msg) {
	callText, indexText, _ := strings.Cut(m.Subject[len(c.acks.prefix):], ".")
	number, errCall := strconv.ParseUint(callText, 36, 64)
	index, errIndex := strconv.Atoi(indexText)
	if errCall != nil || errIndex != nil {
		return
	}
	c.acks.mu.Lock()
	f := c.acks.calls[number]
	c.acks.mu.Unlock()
	if f != nil { // else it came too late
		f.answered(index, parseAck(m, &c.acks.stream))
	}
	if c.denied.isAny.Load() {
		c.judgeDenials()
	}
}
