package nats

import (
	"sync/atomic"
	"time"
)

// inFlightMost bounds what a connection keeps without an answer: a stream of an
// older server refuses to queue more than 10,000. It is for safety; whoever
// publishes keeps far less in flight.
const inFlightMost = 8192

// pace is how far the server has come with what was handed to the connection.
// It reads a connection in order: an answer to one message shows that it has
// got all that were handed over before it.
type pace struct {
	born time.Time
	turn chan struct{} // of 1: taken by the call that hands over
	// handed counts what was handed over; it belongs to the holder of the turn.
	handed  uint64
	waiting atomic.Int64  // handed over, without an answer
	reached atomic.Uint64 // the highest message that was answered
	at      atomic.Int64  // when that was, on the clock
}

func newPace() pace { return pace{born: time.Now(), turn: make(chan struct{}, 1)} }

// clock is the time since the connection was made.
func (p *pace) clock() time.Duration { return time.Since(p.born) }

// reach notes that a message was answered. Only one goroutine at a time calls
// it for higher numbers, that of the acks; a lost race makes a deadline later.
func (p *pace) reach(number uint64) {
	if number > p.reached.Load() {
		p.at.Store(int64(p.clock()))
		p.reached.Store(number)
	}
}

// since is from when on a message's time counts, if it counted from then on
// before: while the server answers earlier ones, it has not got this one yet.
func (p *pace) since(number uint64, then time.Duration) time.Duration {
	if p.reached.Load() >= number {
		return then
	}
	return max(then, time.Duration(p.at.Load()))
}
