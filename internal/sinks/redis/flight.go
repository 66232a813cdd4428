package redis

import (
	"cmp"
	"errors"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Fields of an entry, besides the message's headers.
const (
	// FieldKey is the message's Key, if it has one.
	FieldKey = "delay-key"
	// FieldBody is the body, and always the last field.
	FieldBody = "body"
)

// The states of a flight.
const (
	onGround  = iota // no part of it was given to a connection
	inTheAir         // it was, or is about to be
	withdrawn        // it was not, and will not be
)

var errWithdrawn = errors.New("withdrawn before it was handed over")

// flight is a pipeline of one XADD for each item. A sender has one and reuses its
// memory.
type flight struct {
	sink  *Sink
	state atomic.Int32
	items []publication

	headers  []message.Header // of all items
	ends     []int            // of each item's headers
	args     []any            // of all commands
	bodies   []byte           // of all items
	payloads []payload
	commands []xadd
	failure  error // the client's, for all
}

// payload is the last argument of a command. The client asks for it when it writes the
// command: from then on, the connection has it.
type payload struct {
	flight *flight
	body   []byte
}

// MarshalBinary implements [encoding.BinaryMarshaler].
func (p *payload) MarshalBinary() ([]byte, error) {
	if p.flight.state.CompareAndSwap(onGround, inTheAir); p.flight.isWithdrawn() {
		return nil, errWithdrawn // The connection ends with half a command.
	}
	return p.body, nil
}

// xadd is a command that the client never resends after a lost answer.
type xadd struct{ *goredis.StringCmd }

// NoRetry implements [goredis.Cmder].
func (xadd) NoRetry() bool { return true }

func (f *flight) reset() {
	clear(f.items)
	clear(f.headers)
	f.items, f.headers, f.ends, f.args = f.items[:0], f.headers[:0], f.ends[:0], f.args[:0]
	f.bodies, f.payloads, f.commands = f.bodies[:0], f.payloads[:0], f.commands[:0]
	if cap(f.bodies) > 2*pipelineBytes {
		f.bodies = nil // Of a large message; few are.
	}
	f.failure = nil
	f.state.Store(onGround)
}

// withdraw keeps the flight from being handed over; false if it is too late for that.
func (f *flight) withdraw() bool {
	f.state.CompareAndSwap(onGround, withdrawn)
	return f.isWithdrawn()
}

func (f *flight) isWithdrawn() bool { return f.state.Load() == withdrawn }

// encode makes the commands. Nothing refers to the batches afterwards.
func (f *flight) encode() {
	for _, i := range f.items {
		f.headers = i.message().AppendHeaders(f.headers)
		if key := i.message().Key; key != "" {
			f.headers = append(f.headers, message.Header{Name: FieldKey, Value: key})
		}
		f.ends = append(f.ends, len(f.headers))
		f.bodies = append(f.bodies, i.message().Body...)
	}
	rest := f.bodies
	for _, i := range f.items {
		size := len(i.message().Body)
		f.payloads = append(f.payloads, payload{f, rest[:size]})
		rest = rest[size:]
	}
	begin := 0
	for n, i := range f.items {
		first := len(f.args)
		f.args = append(f.args, "XADD", i.message().Topic, "NOMKSTREAM", "*")
		for h := range f.headers[begin:f.ends[n]] {
			header := &f.headers[begin+h]
			f.args = append(f.args, &header.Name, &header.Value)
		}
		begin = f.ends[n]
		f.args = append(f.args, FieldBody, &f.payloads[n])
		f.commands = append(f.commands, xadd{goredis.NewStringCmd(f.sink.root, f.args[first:len(f.args):len(f.args)]...)})
		i.submission.encoding.Done()
	}
}

// send runs the commands, each of which keeps its result.
func (f *flight) send() {
	if err := f.sink.checkSize(f.topic(), len(f.payloads[0].body)); err != nil { // A large message is alone.
		f.commands[0].SetErr(err)
		return
	}
	pipeline := f.sink.client.Pipeline()
	for _, command := range f.commands {
		_ = pipeline.Process(f.sink.root, command) // It is queued.
	}
	_, f.failure = pipeline.Exec(f.sink.root)
}

func (f *flight) topic() string { return f.args[1].(string) } //nolint:forcetypeassert // see encode

// outcomes returns the outcome of each item. failure is why the connection failed, or was
// not made. After a failure, the client sets that error on all commands, even on answered
// ones.
func (f *flight) outcomes() (outcomes []sinks.Outcome, failure error) {
	sent := f.state.Load() == inTheAir
	for _, command := range f.commands {
		id, err := command.Result()
		switch {
		case id != "":
			outcomes = append(outcomes, sinks.Outcome{Class: sinks.Acknowledged, Place: sinks.Place{IsKnown: true, Entry: id}})
			continue
		case err == nil && sent:
			err = errNoAnswer
		case err == nil: // The client tells no command where the login was refused.
			err = cmp.Or(f.failure, errNoAnswer)
		}
		if failure == nil && !isOfMessage(err) && (!sent || !isReply(err)) {
			failure = err
		}
		outcomes = append(outcomes, f.sink.classify(err, sent))
	}
	return outcomes, failure
}
