package rabbitmq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// The tests in this file hold what we write and read against the driver, which they connect to
// a fake broker. A driver that writes or reads otherwise fails them.

const methodDeliver method = 60<<16 | 60

// driverAt connects the driver to a fake broker. It records what the driver writes.
func driverAt(t testing.TB, f *fake) (*amqp.Connection, *recorder) {
	t.Helper()
	written := &recorder{}
	conn, err := amqp.DialConfig(f.url(), amqp.Config{Dial: func(network, address string) (net.Conn, error) {
		conn, err := amqp.DefaultDial(time.Minute)(network, address)
		written.Conn = conn
		return written, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, written
}

// recorder notes each Write.
type recorder struct {
	net.Conn

	mu     sync.Mutex
	writes [][]byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.writes = append(r.writes, bytes.Clone(p))
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// receive takes from a channel that the driver sends to.
func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case value, ok := <-from:
		require.True(t, ok, "the driver has closed it")
		return value
	case <-time.After(time.Minute):
		require.FailNow(t, "the driver has said nothing")
		panic("unreachable")
	}
}

// contentOf is the frames of a message behind the one of its method.
func contentOf(publish []byte) []byte {
	return publish[frameExtra+int(binary.BigEndian.Uint32(publish[3:])):]
}

// want is what a consumer gets of a message.
func want(m *message.Message) amqp.Publishing {
	p := amqp.Publishing{Headers: amqp.Table{}, DeliveryMode: amqp.Persistent, Timestamp: time.Unix(m.DueAt.Unix(), 0), Body: m.Body}
	for _, header := range m.PublishedHeaders() {
		if p.ContentType == "" && strings.EqualFold(header.Name, contentType) {
			p.ContentType = header.Value // AMQP has no empty property, so that is a header.
			if header.Value != "" {
				continue
			}
		}
		p.Headers[header.Name] = header.Value
	}
	if len(m.ID) <= maxShortString {
		p.MessageId = m.ID
	}
	return p
}

// FuzzPublish has the driver read what we publish.
func FuzzPublish(f *testing.F) {
	broker := newFake(f, func(string, int) bool { return true })
	conn, _ := driverAt(f, broker)
	channel, err := conn.Channel()
	require.NoError(f, err)
	deliveries, err := channel.Consume("queue", "consumer", true, false, false, false, nil)
	require.NoError(f, err)
	f.Add("id", "topic", "Content-Type", "text/plain", []byte("body"), uint16(4096))
	f.Add("id", "topic", "content-type", "", []byte{}, uint16(0))
	f.Add(strings.Repeat("i", 256), strings.Repeat("t", 255), "x-empty", "", bytes.Repeat([]byte("0123456789abcdef"), 1000), uint16(4096))
	f.Add("id", "topic", "x-like-it", "a\tdelay-uidSnone", []byte("body"), uint16(0))
	f.Add("ключ", "заказы", "traceparent", "00-1-2-01", []byte{0xCE, 0}, uint16(8192))
	f.Fuzz(func(t *testing.T, id, topic, name, value string, body []byte, size uint16) {
		m := newMessage(t, "orders", topic)
		m.ID, m.Headers, m.Body = id, map[string]string{name: value}, body
		frameSize := 4096 + int(size)
		properties, refused := newEncoder(1, frameSize).properties(&m)
		if refused != nil {
			return
		}
		if !strings.Contains(id+value, "\x00") {
			require.Equal(t, m.UID(), uidIn(properties))
		}
		arguments := append(appendShort(nil, "consumer"), tag(1)...)
		arguments = appendShort(appendShort(append(arguments, 0), "exchange"), topic)
		published := appendPublish(nil, 1, "exchange", topic, properties, body, frameSize)
		broker.say(t, append(appendMethod(nil, 1, methodDeliver, arguments...), contentOf(published)...))

		got, expected := receive(t, deliveries), want(&m)
		require.Equal(t, topic, got.RoutingKey)
		require.True(t, bytes.Equal(body, got.Body))
		expected.Body = nil
		require.Equal(t, expected, amqp.Publishing{
			Headers: got.Headers, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode,
			Priority: got.Priority, CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, Expiration: got.Expiration,
			MessageId: got.MessageId, Timestamp: got.Timestamp, Type: got.Type, UserId: got.UserId, AppId: got.AppId,
		})
	})
}

// TestTheDriverWritesTheSame has the driver do what we do, and compares the frames.
func TestTheDriverWritesTheSame(t *testing.T) {
	t.Parallel()
	broker := newFake(t, func(string, int) bool { return true })
	frames := make(chan []byte, 16)
	broker.received = func(kind byte, number uint16, payload []byte) {
		frames <- endFrame(append(beginFrame(nil, kind, number), payload...), 0)
	}
	conn, _ := driverAt(t, broker)
	channel, err := conn.Channel()
	require.NoError(t, err)
	require.Equal(t, appendMethod(nil, 1, methodOpen, 0), receive(t, frames))
	require.NoError(t, channel.Confirm(false))
	require.Equal(t, appendMethod(nil, 1, methodConfirm, 0), receive(t, frames))

	m := newMessage(t, "orders", "topic")
	m.Headers, m.Body = map[string]string{"Content-Type": "text/plain"}, bytes.Repeat([]byte("x"), conn.Config.FrameSize+1)
	require.NoError(t, channel.PublishWithContext(t.Context(), "exchange", m.Topic, true, false, want(&m)))
	properties, refused := newEncoder(1, conn.Config.FrameSize).properties(&m)
	require.Nil(t, refused)
	ours := appendPublish(nil, 1, "exchange", m.Topic, properties, m.Body, conn.Config.FrameSize)
	method := receive(t, frames)
	require.Equal(t, ours[:len(method)], method)
	ours = ours[len(method):]
	header := receive(t, frames) // Its table is in no order.
	require.Equal(t, ours[:frameHead+14], header[:frameHead+14], "as far as the flags")
	require.Len(t, header, len(ours)-len(contentOf(ours)))
	require.Equal(t, m.UID(), uidIn(header[frameHead+12:]))
	ours = contentOf(ours)
	for len(ours) > 0 {
		body := receive(t, frames)
		require.Equal(t, ours[:len(body)], body)
		ours = ours[len(body):]
	}

	require.NoError(t, channel.Close())
	require.Equal(t, appendMethod(nil, 1, methodClose, 0, replySuccess, 0, 0, 0, 0, 0), receive(t, frames))
	channel, err = conn.Channel()
	require.NoError(t, err)
	number := binary.BigEndian.Uint16(receive(t, frames)[1:])
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	broker.say(t, appendMethod(nil, number, methodClose, append([]byte{1, 148, 4}, "gone\x00\x00\x00\x00"...)...))
	require.Equal(t, appendMethod(nil, number, methodCloseOK), receive(t, frames))
	require.NotNil(t, receive(t, closed))
}

// TestTheDriverReadsTheSame has the driver and us hear the same of the broker.
func TestTheDriverReadsTheSame(t *testing.T) {
	t.Parallel()
	broker := newFake(t, func(string, int) bool { return false })
	conn, _ := driverAt(t, broker)
	channel, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, channel.Confirm(false))
	confirmed, returned := channel.NotifyPublish(make(chan amqp.Confirmation, 4)), channel.NotifyReturn(make(chan amqp.Return, 1))
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	m := newMessage(t, "orders", "topic")
	for range 4 {
		require.NoError(t, channel.PublishWithContext(t.Context(), "", m.Topic, true, false, amqp.Publishing{}))
	}
	properties, refused := newEncoder(1, 0).properties(&m)
	require.Nil(t, refused)
	said := bytes.Join([][]byte{
		appendMethod(nil, 1, methodAck, append(tag(1), 0)...), appendMethod(nil, 1, methodNack, append(tag(2), 0)...),
		appendMethod(nil, 1, methodReturn, appendShort(appendShort(appendShort([]byte{1, 56}, "NO_ROUTE"), "exchange"), m.Topic)...),
		contentOf(appendPublish(nil, 1, "", m.Topic, properties, m.Body, 0)),
		appendMethod(nil, 1, methodAck, append(tag(4), 1)...),
		appendMethod(nil, 1, methodClose, append([]byte{1, 148, 4}, "gone\x00\x00\x00\x00"...)...),
	}, nil)
	near, far := net.Pipe()
	ours, roused := newMux(near, &channelLimit{}), make(chan struct{}, 1)
	opened := &openChannel{mux: ours, number: 1, rouse: func() { roused <- struct{}{} }}
	ours.channels[1] = opened
	go func() {
		_, _ = far.Write(said)
		_ = far.Close()
	}()
	_, err = ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	broker.say(t, said)
	var acked []event
	for range 4 {
		c := receive(t, confirmed)
		m := methodNack
		if c.Ack {
			m = methodAck
		}
		acked = append(acked, event{method: m, tag: c.DeliveryTag})
	}
	back, exception := receive(t, returned), receive(t, closed)
	require.Equal(t, []event{
		acked[0], acked[1],
		{method: methodReturn, returned: &returnedMessage{code: back.ReplyCode, topic: back.RoutingKey, uid: back.Headers[message.HeaderUID].(string)}},
		{method: methodAck, tag: acked[3].tag, isMultiple: true},
		{method: methodClose, exception: exception},
	}, opened.take())
	require.Equal(t, methodAck, acked[2].method)
}

// TestTheDriverWritesWholeFrames: our frames come between two of its writes.
func TestTheDriverWritesWholeFrames(t *testing.T) {
	t.Parallel()
	conn, written := driverAt(t, newFake(t, func(string, int) bool { return true }))
	_, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Greater(t, len(written.writes), 4, "greeting, two of the login, the channel, farewell")
	for _, write := range written.writes[1:] {
		for len(write) > 0 {
			require.GreaterOrEqual(t, len(write), frameExtra)
			size := frameExtra + int(binary.BigEndian.Uint32(write[3:]))
			require.GreaterOrEqual(t, len(write), size)
			require.EqualValues(t, frameEnd, write[size-1])
			write = write[size:]
		}
	}
}

// FuzzMux has a broker say anything: the driver gets its frames, and only whole ones.
func FuzzMux(f *testing.F) {
	heartbeat := []byte{8, 0, 0, 0, 0, 0, 0, frameEnd}
	f.Add(bytes.Join([][]byte{
		appendMethod(nil, 1, methodOpenOK, 0, 0, 0, 0), heartbeat, appendMethod(nil, 1, methodConfirmOK),
		appendMethod(nil, 1, methodReturn, append([]byte{1, 56, 0, 0, 5}, "topic"...)...),
		contentOf(appendPublish(nil, 1, "", "", []byte{0, 0}, []byte("body that came back"), frameExtra+5)),
		appendMethod(nil, 1, methodAck, append(tag(7), 1)...), heartbeat, appendMethod(nil, 1, methodNack, append(tag(8), 0)...),
	}, nil))
	f.Add(append(appendMethod(nil, 1, methodClose, append([]byte{1, 148, 4}, "gone\x00\x00\x00\x00"...)...), heartbeat...))
	f.Add(append(appendMethod(nil, 1, methodCloseOK), appendMethod(nil, 1, methodAck, 0)...))
	f.Add(append(uidField, 0xFF, 0xFF, 0xFF, 0xFF))
	f.Fuzz(func(t *testing.T, said []byte) {
		m := newMux(&replayConn{said: bytes.NewReader(said)}, &channelLimit{})
		m.channels[1] = &openChannel{mux: m, number: 1, rouse: func() {}}
		got, err := io.ReadAll(iotest.OneByteReader(m))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errMalformed) {
			t.Fatal(err)
		}
		var all []byte
		for rest := said; len(rest) >= frameHead; {
			size := frameExtra + int(binary.BigEndian.Uint32(rest[3:]))
			if size > len(rest) || size > frameMax {
				break
			}
			if binary.BigEndian.Uint16(rest[1:]) == 0 {
				all = append(all, rest[:size]...)
			}
			rest = rest[size:]
		}
		require.True(t, bytes.HasPrefix(all, got), "what the driver gets is its own")
		require.True(t, err != nil || len(got) == len(all), "all of it, unless the connection ends")
		require.LessOrEqual(t, cap(m.payload), frameMax)
	})
}

// replayConn is a connection whose server has sent everything already.
type replayConn struct {
	net.Conn

	said io.Reader
}

func (h *replayConn) Read(p []byte) (int, error)  { return h.said.Read(p) }
func (h *replayConn) Write(p []byte) (int, error) { return len(p), nil }
