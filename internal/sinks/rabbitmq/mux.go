package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// frameMax is the longest frame that we agree to.
const frameMax = 128 << 10

// mux divides a connection between the driver and us. The frames of channel 0
// are the driver's: login, heartbeats, alarms and farewell. Those of all other
// channels are ours: through the driver a message costs nearly three times the CPU and
// 70 allocations.
//
// It is the driver's socket. Each Write is whole frames, on both sides, so
// that ours may come between two of the driver's. The driver's reader calls Read,
// in which our frames are handled.
type mux struct {
	net.Conn
	in      *bufio.Reader
	rest    []byte       // of a frame of channel 0, which the driver has not read yet
	payload []byte       // memory of our frames
	silence atomic.Int64 // how long nothing may be received; 0 is for ever

	mu       sync.Mutex
	channels map[uint16]*openChannel
	most     uint16 // the highest number of a channel
	limit    *channelLimit
	counted  int // channels that the broker has opened
	isOver   bool
}

func newMux(conn net.Conn, limit *channelLimit) *mux {
	m := &mux{Conn: conn, channels: map[uint16]*openChannel{}, limit: limit}
	m.in = bufio.NewReaderSize(&patientReader{m}, 32<<10)
	return m
}

// begin ends the login: that many channels may be open, and the other side is never
// silent for longer.
func (m *mux) begin(channels uint16, silence time.Duration) {
	m.silence.Store(int64(silence))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = channels
}

// patientReader reads as long as the other side is not silent. The driver sees to that
// only for the frames that it gets.
type patientReader struct{ m *mux }

func (p *patientReader) Read(b []byte) (int, error) {
	if silence := time.Duration(p.m.silence.Load()); silence > 0 {
		if err := p.m.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return 0, err
		}
	}
	return p.m.Conn.Read(b)
}

// Read gives the driver its frames. It handles ours until one of the driver's comes.
func (m *mux) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// next reads one frame.
func (m *mux) next() error {
	head, err := m.in.Peek(frameHead)
	if err != nil {
		return err
	}
	kind, number := head[0], binary.BigEndian.Uint16(head[1:])
	size := int64(binary.BigEndian.Uint32(head[3:])) + frameExtra
	if size > frameMax {
		return fmt.Errorf("%w: %d bytes", errMalformed, size)
	}
	if int64(cap(m.payload)) < size {
		m.payload = make([]byte, size)
	}
	frame := m.payload[:size]
	if _, err := io.ReadFull(m.in, frame); err != nil {
		return err
	}
	if number == 0 {
		m.rest = frame
		return nil
	}
	if frame[size-1] != frameEnd {
		return errMalformed
	}
	return m.deliver(kind, number, frame[frameHead:size-1])
}

// deliver hands a frame to its channel.
func (m *mux) deliver(kind byte, number uint16, payload []byte) error {
	m.mu.Lock()
	channel := m.channels[number]
	m.mu.Unlock()
	if channel == nil {
		return fmt.Errorf("%w: of channel %d, which is not open", errMalformed, number)
	}
	isOver, err := channel.receive(kind, payload)
	if isOver {
		m.release(channel)
	}
	return err
}

// open asks for a channel with confirmations, which is ready when its first
// event comes. rouse is called when there are events, and must not block.
func (m *mux) open(rouse func()) (*openChannel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	number := uint16(1)
	for m.channels[number] != nil {
		number++
	}
	if number > m.most {
		return nil, errNoNumber
	}
	channel := &openChannel{mux: m, number: number, rouse: rouse}
	b := appendMethod(nil, number, methodOpen, 0)
	if _, err := m.Write(appendMethod(b, number, methodConfirm, 0)); err != nil {
		return nil, errors.Join(errLost, err)
	}
	m.channels[number] = channel
	return channel, nil
}

// release frees the number of a channel.
func (m *mux) release(channel *openChannel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.channels, channel.number)
	if channel.isCounted && !m.isOver {
		m.counted--
		m.limit.opened(-1)
	}
}

// count notes that the broker has opened a channel.
func (m *mux) count(channel *openChannel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if channel.isCounted || m.isOver {
		return
	}
	channel.isCounted = true
	m.counted++
	m.limit.opened(1)
}

// isAsking reports whether the broker has not opened a channel yet that we asked for.
func (m *mux) isAsking() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counted < len(m.channels)
}

// end counts the channels off, with the connection that is lost.
func (m *mux) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isOver = true
	m.limit.opened(-m.counted)
	m.counted = 0
}
