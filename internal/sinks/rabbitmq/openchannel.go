package rabbitmq

import (
	"encoding/binary"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// openChannel is an AMQP channel in confirm mode, from when we ask for it until
// one side has closed it. The driver's reader appends events, in the order of the
// broker, so that a return comes before the acknowledgement that follows it.
type openChannel struct {
	mux    *mux
	number uint16
	rouse  func()

	// The channel's own.
	isReady bool    // the broker has opened it
	tag     uint64  // of the message that was published last
	frames  []byte  // memory of publish
	taken   []event // memory of take

	returning *returnedMessage // it is not complete; the reader's own
	isCounted bool             // the broker has opened it; the mux guards it

	mu       sync.Mutex
	events   []event
	isClosed bool // by us: its events do not count
}

// event is something that the broker said.
type event struct {
	method     method
	tag        uint64
	isMultiple bool
	returned   *returnedMessage
	exception  *amqp.Error
}

// returnedMessage is a message that the broker could not route.
type returnedMessage struct {
	code  uint16
	topic string
	uid   string
	left  uint64 // bytes of the body that have not come yet
}

// receive takes a frame from the broker. isOver says that it was the channel's last.
func (o *openChannel) receive(kind byte, payload []byte) (isOver bool, err error) {
	switch {
	case kind == frameMethod:
		r := reader{rest: payload}
		isOver, err = o.receiveMethod(method(r.uint32()), &r)
		if r.isShort {
			err = errMalformed
		}
		return isOver, err
	case kind == frameHeader && o.returning != nil:
		return false, o.receiveHeader(payload)
	case kind == frameBody && o.returning != nil:
		o.receiveBody(len(payload))
		return false, nil
	default:
		return false, errMalformed
	}
}

func (o *openChannel) receiveMethod(m method, r *reader) (isOver bool, err error) {
	switch m {
	case methodOpenOK:
		o.mux.count(o)
	case methodConfirmOK:
		o.add(event{method: m})
	case methodAck, methodNack:
		o.add(event{method: m, tag: r.uint64(), isMultiple: r.octet()&1 != 0})
	case methodReturn:
		o.returning = &returnedMessage{code: r.uint16()}
		r.short() // the reason in words
		r.short() // the exchange
		o.returning.topic = r.short()
	case methodClose:
		exception := &amqp.Error{Code: int(r.uint16()), Reason: r.short(), Server: true, Recover: true}
		if !o.add(event{method: m, exception: exception}) {
			_, err = o.mux.Write(appendMethod(nil, o.number, methodCloseOK))
		}
	case methodCloseOK:
		return true, nil
	default:
		return false, errMalformed
	}
	return false, err
}

func (o *openChannel) receiveHeader(payload []byte) error {
	r := reader{rest: payload}
	r.uint32() // class, weight
	o.returning.left = r.uint64()
	if r.isShort {
		return errMalformed
	}
	o.returning.uid = uidIn(r.rest)
	o.receiveBody(0)
	return nil
}

// receiveBody drops a piece of a returned body.
func (o *openChannel) receiveBody(size int) {
	back := o.returning
	back.left -= min(back.left, uint64(size))
	if back.left == 0 {
		o.returning = nil
		o.add(event{method: methodReturn, returned: back})
	}
}

// add appends an event, and reports false if we have closed the channel.
func (o *openChannel) add(e event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isClosed {
		return false
	}
	if o.events = append(o.events, e); len(o.events) == 1 {
		o.rouse()
	}
	return true
}

// isOpened returns nil if the broker's first frame on a new channel says that it
// confirms messages.
func (o *openChannel) isOpened() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := o.events[0]; first.method != methodConfirmOK {
		return fmt.Errorf("channel closed: %w", first.exception)
	}
	return nil
}

// take returns the events since the last call; they are valid until the next.
func (o *openChannel) take() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken, o.events = o.events, o.taken[:0]
	return o.taken
}

// publish hands a message over, and notes where it is on the wire.
func (o *openChannel) publish(c *connection, p *publication) error {
	o.frames = appendPublish(o.frames[:0], o.number, c.config.Exchange, p.topic, p.properties, p.body, c.amqp.Config.FrameSize)
	p.start = c.wire.position()
	_, err := o.mux.Write(o.frames)
	p.end = c.wire.position()
	if err == nil {
		o.tag++
	}
	if cap(o.frames) > wireRoom {
		o.frames = nil
	}
	return err
}

// acceptClose ends a channel that the broker has closed. Whoever publishes calls
// it: a message after it would end the connection.
func (o *openChannel) acceptClose() {
	_, _ = o.mux.Write(appendMethod(nil, o.number, methodCloseOK)) // If it fails, all is over.
	o.mux.release(o)
}

// close ends a channel without waiting for the broker's answer, which comes, or
// the connection ends. Its number is taken until then.
func (o *openChannel) close() {
	o.mu.Lock() // The answer to a close of the broker's comes after ours.
	defer o.mu.Unlock()
	o.isClosed = true
	if n := len(o.events); n > 0 && o.events[n-1].method == methodClose {
		o.acceptClose()
		return
	}
	farewell := binary.BigEndian.AppendUint16(nil, replySuccess)
	_, _ = o.mux.Write(appendMethod(nil, o.number, methodClose, append(farewell, 0, 0, 0, 0, 0)...)) // as above
}

// replySuccess is the code of a close without an error.
const replySuccess = 200
