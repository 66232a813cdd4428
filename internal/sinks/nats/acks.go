package nats

import (
	"strconv"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// acks finds the message that an answer is for. All answers of a connection
// come back on one inbox; their subjects name the flight and the message.
type acks struct {
	prefix  string        // of the inbox
	drained chan struct{} // closed when no ack can come any more

	mu      sync.Mutex
	flights map[uint64]*flight
	last    uint64
}

func newAcks() acks {
	return acks{prefix: natsgo.NewInbox() + ".", drained: make(chan struct{}), flights: map[uint64]*flight{}}
}

// add makes the flight known to onAck and returns the prefix of its subjects.
func (a *acks) add(f *flight) (number uint64, prefix string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.flights[a.last] = f
	return a.last, a.prefix + strconv.FormatUint(a.last, 36) + "."
}

func (a *acks) remove(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.flights, number)
}

func (a *acks) all() []*flight {
	a.mu.Lock()
	defer a.mu.Unlock()
	flights := make([]*flight, 0, len(a.flights))
	for _, f := range a.flights {
		flights = append(flights, f)
	}
	return flights
}

// onAck hands an answer to its flight. It must not block: all acks wait for it.
func (l *link) onAck(m *natsgo.Msg) {
	flightText, indexText, _ := strings.Cut(m.Subject[len(l.acks.prefix):], ".")
	number, errFlight := strconv.ParseUint(flightText, 36, 64)
	index, errIndex := strconv.Atoi(indexText)
	if errFlight != nil || errIndex != nil {
		return
	}
	l.acks.mu.Lock()
	f := l.acks.flights[number]
	l.acks.mu.Unlock()
	if f != nil { // else it came too late
		f.answered(index, parseAck(m))
	}
}
