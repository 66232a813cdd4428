package rabbitmq

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// newMuxPipe returns a mux that is logged in, what its driver reads, and the
// broker's side.
func newMuxPipe(t *testing.T) (m *mux, driver <-chan []byte, broker net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	m = newMux(near, &channelLimit{})
	m.begin(2, time.Minute)
	frames := make(chan []byte, 16)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(frames)
		for {
			frame := make([]byte, frameMax)
			n, err := m.Read(frame)
			if err != nil {
				return
			}
			frames <- frame[:n]
		}
	})
	t.Cleanup(func() {
		_ = far.Close()
		_ = near.Close()
		reading.Wait()
	})
	return m, frames, far
}

// say has the broker write to the mux.
func say(t *testing.T, broker net.Conn, frames ...[]byte) {
	t.Helper()
	_, err := broker.Write(bytes.Join(frames, nil))
	require.NoError(t, err)
}

// hears requires that the next that the mux writes is a method.
func hears(t *testing.T, broker net.Conn, number uint16, m method, arguments ...byte) {
	t.Helper()
	want := appendMethod(nil, number, m, arguments...)
	got := make([]byte, len(want))
	_, err := io.ReadFull(broker, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// openOn opens a channel, which the broker hears.
func openOn(t *testing.T, m *mux, broker net.Conn, number uint16) (*openChannel, <-chan struct{}) {
	t.Helper()
	roused, opened := make(chan struct{}, 16), make(chan *openChannel, 1)
	go func() {
		o, err := m.open(func() { roused <- struct{}{} })
		if err == nil {
			opened <- o
		}
		close(opened)
	}()
	hears(t, broker, number, methodOpen, 0)
	hears(t, broker, number, methodConfirm, 0)
	o := <-opened
	require.NotNil(t, o)
	return o, roused
}

func tag(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestMuxDivides mixes frames of both, cut anywhere.
func TestMuxDivides(t *testing.T) {
	t.Parallel()
	m, driver, broker := newMuxPipe(t)
	o, roused := openOn(t, m, broker, 1)
	heartbeat := []byte{8, 0, 0, 0, 0, 0, 0, frameEnd}
	properties := appendTable(binary.BigEndian.AppendUint16(nil, hasHeaders), []message.Header{{Name: message.HeaderUID, Value: "uid"}}, -1)
	back := appendPublish(nil, 1, "", "", properties, []byte("body that came back"), frameExtra+5)
	back = back[bytes.IndexByte(back, frameEnd)+1:] // without the method
	all := bytes.Join([][]byte{
		appendMethod(nil, 1, methodOpenOK, 0, 0, 0, 0), heartbeat, appendMethod(nil, 1, methodConfirmOK),
		appendMethod(nil, 1, methodReturn, append([]byte{1, 56, 0, 0, 5}, "topic"...)...), back,
		appendMethod(nil, 1, methodAck, append(tag(7), 1)...), heartbeat, appendMethod(nil, 1, methodNack, append(tag(8), 0)...),
	}, nil)
	for i := range all {
		say(t, broker, all[i:i+1])
	}
	require.Equal(t, heartbeat, <-driver)
	require.Equal(t, heartbeat, <-driver)
	say(t, broker, heartbeat)
	<-driver // All before it was handled.
	<-roused
	require.Empty(t, roused, "once for all of them")
	require.Equal(t, []event{
		{method: methodConfirmOK},
		{method: methodReturn, returned: &returnedMessage{code: amqp.NoRoute, topic: "topic", uid: "uid"}},
		{method: methodAck, tag: 7, isMultiple: true},
		{method: methodNack, tag: 8},
	}, o.take())
	require.Empty(t, o.take())
}

// TestMuxCloses ends channels from both sides, and from both at once.
func TestMuxCloses(t *testing.T) {
	t.Parallel()
	m, driver, broker := newMuxPipe(t)
	refused := appendMethod(nil, 1, methodClose, append([]byte{1, 148, 4}, "gone\x00\x00\x00\x00"...)...)
	heartbeat := []byte{8, 0, 0, 0, 0, 0, 0, frameEnd}
	acceptance := func(accept func()) {
		var accepting sync.WaitGroup
		accepting.Go(accept)
		hears(t, broker, 1, methodCloseOK)
		accepting.Wait()
	}

	o, roused := openOn(t, m, broker, 1)
	say(t, broker, refused)
	<-roused
	require.Equal(t, []event{{method: methodClose, exception: &amqp.Error{Code: amqp.NotFound, Reason: "gone", Server: true, Recover: true}}}, o.take())
	_, _ = openOn(t, m, broker, 2)
	_, err := m.open(func() {})
	require.ErrorIs(t, err, errNoNumber, "its number is taken until we have accepted")
	acceptance(o.acceptClose)

	// We close it before we have seen that the broker has.
	o, roused = openOn(t, m, broker, 1)
	say(t, broker, refused)
	<-roused
	acceptance(o.close)

	// The broker closes it before it has seen that we have.
	o, _ = openOn(t, m, broker, 1)
	var closing sync.WaitGroup
	closing.Go(o.close)
	hears(t, broker, 1, methodClose, 0, 200, 0, 0, 0, 0, 0)
	closing.Wait()
	say(t, broker, appendMethod(nil, 1, methodAck, append(tag(1), 0)...), refused)
	hears(t, broker, 1, methodCloseOK)
	require.Empty(t, o.take(), "nothing counts any more")
	_, err = m.open(func() {})
	require.ErrorIs(t, err, errNoNumber, "its number is taken until the broker has accepted")
	say(t, broker, appendMethod(nil, 1, methodCloseOK), heartbeat)
	<-driver
	_, _ = openOn(t, m, broker, 1)
}

// TestMuxRefuses what no broker sends: the connection ends.
func TestMuxRefuses(t *testing.T) {
	t.Parallel()
	long := beginFrame(nil, frameMethod, 1)
	binary.BigEndian.PutUint32(long[3:], frameMax)
	for name, frame := range map[string][]byte{
		"too long":              long,
		"no end":                append(beginFrame(nil, frameMethod, 1), 0),
		"unknown channel":       appendMethod(nil, 2, methodAck, append(tag(1), 0)...),
		"unknown method":        appendMethod(nil, 1, methodPublish),
		"ack cut off":           appendMethod(nil, 1, methodAck, 0, 0),
		"content of nothing":    endFrame(beginFrame(nil, frameBody, 1), 0),
		"header of a return":    append(appendMethod(nil, 1, methodReturn, 1, 56, 0, 0, 0), endFrame(beginFrame(nil, frameHeader, 1), 0)...),
		"method without a name": endFrame(beginFrame(nil, frameMethod, 1), 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, driver, broker := newMuxPipe(t)
			_, _ = openOn(t, m, broker, 1)
			say(t, broker, frame)
			_, isOpen := <-driver
			require.False(t, isOpen)
		})
	}
}

// TestMuxIsPatient ends a connection on which nothing comes for too long.
func TestMuxIsPatient(t *testing.T) {
	t.Parallel()
	m, driver, broker := newMuxPipe(t)
	_, _ = openOn(t, m, broker, 1)
	m.begin(2, 50*time.Millisecond)
	say(t, broker, appendMethod(nil, 1, methodOpenOK, 0, 0, 0, 0)) // The read after it is the first with that patience.
	_, isOpen := <-driver
	require.False(t, isOpen)
}
