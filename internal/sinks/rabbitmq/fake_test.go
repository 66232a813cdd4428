package rabbitmq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// fake is a broker that does with each message what the test says: real ones
// cannot be told to keep one queue waiting. It knows only what the sink asks.
type fake struct {
	t        testing.TB
	listener net.Listener
	// onPublish is called with the routing key and the body's size, one call at a
	// time, and says whether to answer at once, or when confirm says so.
	onPublish func(topic string, size int) bool
	serving   sync.WaitGroup
	rate      atomic.Int64 // bytes that a connection takes in a second; 0 is no limit
	refuses   atomic.Bool  // it closes each channel in place of opening it
	// received is called for each frame of a channel, if it is not nil.
	received func(kind byte, number uint16, payload []byte)

	mu    sync.Mutex
	conns []net.Conn
	kept  map[string][]func() // by routing key: the acknowledgements held back
}

// newFake starts the broker, which the test's end stops.
func newFake(t testing.TB, onPublish func(topic string, size int) bool) *fake {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{t: t, listener: listener, onPublish: onPublish, kept: map[string][]func(){}}
	f.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, conn)
			f.mu.Unlock()
			f.serving.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		f.mu.Lock()
		for _, conn := range f.conns {
			_ = conn.Close()
		}
		f.mu.Unlock()
		f.serving.Wait()
	})
	return f
}

func (f *fake) url() string { return "amqp://guest:guest@" + f.listener.Addr().String() + "/" }

// answer has the messages of a routing key answered at once from now on.
func (f *fake) answer(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.onPublish
	f.onPublish = func(published string, size int) bool { return published == topic || before(published, size) }
}

// confirm acknowledges what was held back of a routing key.
func (f *fake) confirm(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, acknowledge := range f.kept[topic] {
		acknowledge()
	}
	delete(f.kept, topic)
}

// fakeChannel is what the broker knows of an open channel.
type fakeChannel struct {
	tag   uint64
	topic string
	size  uint64
	got   uint64
	over  bool // closed; guarded by the broker's mu
}

// serve speaks AMQP 0-9-1 over one connection until it ends.
func (f *fake) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReaderSize(&slowReader{conn, f}, 4<<10)
	if _, err := io.ReadFull(r, make([]byte, 8)); err != nil { // the protocol's header
		return
	}
	send(conn, 0, 10, 10, []byte{0, 9}, table(), longString("PLAIN"), longString("en_US")) // start
	channels := map[uint16]*fakeChannel{}
	for {
		kind, number, payload, err := readFrame(r)
		if err != nil {
			return
		}
		if f.received != nil && number != 0 {
			f.received(kind, number, payload)
		}
		switch kind {
		case 1:
			if !f.method(conn, channels, number, payload) {
				return
			}
		case 2:
			channels[number].size = binary.BigEndian.Uint64(payload[4:])
			f.content(conn, channels, number)
		case 8: // heartbeat
			_, _ = conn.Write([]byte{8, 0, 0, 0, 0, 0, 0, 0xCE})
		case 3:
			channels[number].got += uint64(len(payload))
			f.content(conn, channels, number)
		}
	}
}

// method answers one method, and reports false at the connection's end.
func (f *fake) method(conn net.Conn, channels map[uint16]*fakeChannel, number uint16, payload []byte) bool {
	class, method := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
	switch [2]uint16{class, method} {
	case [2]uint16{10, 11}: // start-ok: tune, without heartbeats
		send(conn, 0, 10, 30, []byte{0, 200}, []byte{0, 2, 0, 0}, []byte{0, 0})
	case [2]uint16{10, 40}: // open
		send(conn, 0, 10, 41, []byte{0})
	case [2]uint16{10, 50}: // close
		send(conn, 0, 10, 51)
		return false
	case [2]uint16{20, 10}: // channel open
		channels[number] = &fakeChannel{over: f.refuses.Load()}
		if channels[number].over {
			send(conn, number, 20, 40, []byte{0x01, 0x95, 0}, []byte{0, 20, 0, 10}) // 405, no text, for channel.open
			return true
		}
		send(conn, number, 20, 11, []byte{0, 0, 0, 0})
	case [2]uint16{20, 40}: // channel close
		f.mu.Lock()
		channels[number].over = true
		f.mu.Unlock()
		send(conn, number, 20, 41)
	case [2]uint16{85, 10}: // confirm
		if !channels[number].over {
			send(conn, number, 85, 11)
		}
	case [2]uint16{60, 20}: // consume
		send(conn, number, 60, 21, appendShort(nil, "consumer"))
	case [2]uint16{60, 40}: // publish
		rest := payload[6:]
		rest = rest[1+int(rest[0]):] // the exchange
		c := channels[number]
		c.tag++
		c.topic, c.size, c.got = string(rest[1:1+int(rest[0])]), 0, 0
	}
	return true
}

// content ends a publishing where its body is complete.
func (f *fake) content(conn net.Conn, channels map[uint16]*fakeChannel, number uint16) {
	c := channels[number]
	if c.got < c.size {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	tag := binary.BigEndian.AppendUint64(nil, c.tag)
	acknowledge := func() {
		if !c.over {
			send(conn, number, 60, 80, tag, []byte{0})
		}
	}
	if f.onPublish(c.topic, int(c.size)) {
		acknowledge()
	} else {
		f.kept[c.topic] = append(f.kept[c.topic], acknowledge)
	}
}

// say has the broker write frames over each connection.
func (f *fake) say(t testing.TB, frames []byte) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		_, err := conn.Write(frames)
		require.NoError(t, err)
	}
}

// slowReader takes no more than the broker's rate.
type slowReader struct {
	net.Conn
	broker *fake
}

func (s *slowReader) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if rate := s.broker.rate.Load(); rate > 0 {
		wait.Sleep(s.broker.t.Context(), time.Duration(int64(n)*int64(time.Second)/rate))
	}
	return n, err
}

func readFrame(r io.Reader) (kind byte, number uint16, payload []byte, err error) {
	head := make([]byte, 7)
	if _, err = io.ReadFull(r, head); err != nil {
		return 0, 0, nil, err
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	_, err = io.ReadFull(r, payload)
	return head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1], err
}

// send writes a method. Errors show in what the client does not get.
func send(conn net.Conn, number, class, method uint16, arguments ...[]byte) {
	payload := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), method)
	payload = append(payload, bytes.Join(arguments, nil)...)
	frame := binary.BigEndian.AppendUint16([]byte{1}, number)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
	_, _ = conn.Write(append(append(frame, payload...), 0xCE))
}

func table() []byte { return []byte{0, 0, 0, 0} }

func longString(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}
