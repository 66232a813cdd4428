package kafka

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// The tests in this file hold what we take kafka-go to do. A version that does otherwise fails them.

// FuzzRecords has kafka-go encode messages as we give them, and decode them: no more than we reckon with.
func FuzzRecords(f *testing.F) {
	f.Add("id", "key", "traceparent", "00-1-2-01", []byte("body"))
	f.Add("", "", "", "", []byte(nil))
	f.Add(strings.Repeat("i", 255), strings.Repeat("k", 255), strings.Repeat("n", 255), strings.Repeat("v", 4000), bytes.Repeat([]byte("b"), 70_000))
	f.Fuzz(func(t *testing.T, id, key, name, value string, body []byte) {
		first, m := newMessage(t, "topic", "other"), newMessage(t, "topic", key)
		m.ID, m.Headers, m.Body = id, map[string]string{name: value}, body
		batch := []message.Message{first, m}
		var encoded bytes.Buffer
		set := protocol.RecordSet{Version: 2, Records: &records{batch: itemsOf(batch...)}}
		_, err := set.WriteTo(&encoded)
		require.NoError(t, err)
		const batchHeader = 65
		require.LessOrEqual(t, encoded.Len()-batchHeader, recordSize(&first)+recordSize(&m))
		var got protocol.RecordSet
		_, err = got.ReadFrom(&encoded)
		require.NoError(t, err)
		for i := range batch {
			record, err := got.Records.ReadRecord()
			require.NoError(t, err)
			requireRecord(t, &batch[i], record)
		}
		_, err = got.Records.ReadRecord()
		require.ErrorIs(t, err, io.EOF)
	})
}

func requireRecord(t *testing.T, m *message.Message, record *kafka.Record) {
	t.Helper()
	require.Equal(t, m.Key != "", record.Key != nil)
	key, err := protocol.ReadAll(record.Key)
	require.NoError(t, err)
	require.Equal(t, m.Key, string(key))
	require.NotNil(t, record.Value, "a tombstone")
	value, err := protocol.ReadAll(record.Value)
	require.NoError(t, err)
	require.Equal(t, string(m.Body), string(value))
	var headers []message.Header
	for _, header := range record.Headers {
		headers = append(headers, message.Header{Name: header.Key, Value: string(header.Value)})
	}
	require.Equal(t, m.PublishedHeaders(), headers)
}

// tapped opens a connection to a fake broker, and hands over what is written on it.
func tapped(t *testing.T, broker *fake) (*conn, *bytes.Buffer) {
	t.Helper()
	o, written := newOpener(Config{Brokers: []string{broker.listener.Addr().String()}, PublishTimeout: patience}, logger()), &bytes.Buffer{}
	dial := o.dial
	o.dial = func(ctx context.Context, address string) (net.Conn, error) {
		tcp, err := dial(ctx, address)
		return &tap{tcp, written}, err
	}
	c, err := o.open(t.Context(), broker.listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(c.close)
	written.Reset()
	return c, written
}

type tap struct {
	net.Conn

	written *bytes.Buffer
}

func (p *tap) Write(b []byte) (int, error) {
	p.written.Write(b)
	return p.Conn.Write(b)
}

// TestTheClientAsksTheSame: our request is the client's own, and we read its answer alike.
func TestTheClientAsksTheSame(t *testing.T) {
	t.Parallel()
	for _, a := range []answer{
		{throttle: time.Second},
		{code: kafka.InvalidRecord, refused: []int32{1}},
		{code: kafka.NotLeaderForPartition},
		{code: kafka.NotLeaderForPartition, appended: true},
	} {
		broker := newFake(t, always(a))
		batch := newMessages(t, "topic", "key", 2)
		ours, written := tapped(t, broker)
		result, err := ours.produce(t.Context(), partition{"topic", 3}, &records{batch: itemsOf(batch...)})
		require.NoError(t, err)
		clients, theirs := tapped(t, broker)
		response, err := clients.client.Produce(t.Context(), &kafka.ProduceRequest{
			Topic: "topic", Partition: 3, RequiredAcks: kafka.RequireAll, Records: &records{batch: itemsOf(batch...)},
		})
		require.NoError(t, err)
		require.Equal(t, readRequest(t, batch, theirs), readRequest(t, batch, written))

		require.Equal(t, response.BaseOffset, result.first)
		require.Equal(t, response.Throttle, result.throttle)
		require.Len(t, result.refused, len(response.RecordErrors))
		for _, position := range result.refused {
			require.Contains(t, response.RecordErrors, position)
		}
		require.Equal(t, response.Error == nil, result.err == nil)
		require.ErrorIs(t, result.err, response.Error)
	}
}

// readRequest reads a request but for its records, which must be those of the batch.
func readRequest(t *testing.T, batch []message.Message, written io.Reader) *produce.Request {
	t.Helper()
	version, _, _, read, err := protocol.ReadRequest(written)
	require.NoError(t, err)
	require.EqualValues(t, 8, version, "the fake broker's newest, which tells of refused records")
	request := read.(*produce.Request)
	set := &request.Topics[0].Partitions[0].RecordSet
	for i := range batch {
		record, err := set.Records.ReadRecord()
		require.NoError(t, err)
		requireRecord(t, &batch[i], record)
	}
	set.Records = nil
	return request
}

// TestTheClientEncodesBeforeItWrites: when the first byte leaves, the messages are no longer needed.
func TestTheClientEncodesBeforeItWrites(t *testing.T) {
	t.Parallel()
	c, _ := tapped(t, newFake(t, always(answer{})))
	batch := newMessages(t, "topic", "key", 10)
	for i := range batch {
		batch[i].Body = make([]byte, 100_000)
	}
	reader, isEncoded := &records{batch: itemsOf(batch...)}, false
	c.wire.encoded = func() {
		isEncoded = true
		require.Equal(t, len(batch), reader.read)
	}
	_, err := c.produce(t.Context(), partition{"topic", 0}, reader)
	require.NoError(t, err)
	require.True(t, isEncoded)
}

// FuzzAnswer has a broker answer anything to a request for messages, and cut it off anywhere, or what is no broker.
// The lengths of arrays are what they are: kafka-go believes those, and takes the memory.
func FuzzAnswer(f *testing.F) {
	const version, correlation, messages = 8, 1, 2
	f.Add(int16(0), int64(7), int32(0), int32(0), "", uint16(1000), []byte(nil))
	f.Add(int16(kafka.InvalidRecord), int64(-1), int32(1), int32(10), "refused", uint16(1000), []byte(nil))
	f.Add(int16(kafka.InvalidRecord), int64(-1), int32(-1), int32(-1), "refused", uint16(20), []byte(nil))
	f.Add(int16(0), int64(0), int32(0), int32(0), "", uint16(1000), []byte("\xff000"))
	f.Add(int16(0), int64(0), int32(0), int32(0), "", uint16(1000), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, code int16, offset int64, refused, throttle int32, text string, cut uint16, head []byte) {
		var answer bytes.Buffer
		require.NoError(t, protocol.WriteResponse(&answer, version, correlation, &produce.Response{
			ThrottleTimeMs: throttle, Topics: []produce.ResponseTopic{{Topic: "topic", Partitions: []produce.ResponsePartition{{
				ErrorCode: code, ErrorMessage: text[:min(len(text), 1000)], BaseOffset: offset, RecordErrors: []produce.ResponseError{{BatchIndex: refused}},
			}}}},
		}))
		said := answer.Bytes()
		copy(said[:8], head) // size and correlation
		isWhole := len(said) <= int(cut) && len(head) == 0
		broker := &replayConn{said: bytes.NewReader(said[:min(len(said), int(cut))])}
		c := newConn(newSocket(broker, patience), broker, "broker:9092", Config{PublishTimeout: patience})
		c.protocol.SetVersions(map[protocol.ApiKey]int16{protocol.Produce: version})
		result, err := c.produce(t.Context(), partition{"topic", 0}, &records{batch: itemsOf(newMessages(t, "topic", "key", messages)...)})
		if err != nil {
			require.False(t, isWhole, err)
			require.Equal(t, sinks.Unknown, classify(err).Class)
			return
		}
		r := newReply(result, messages)
		require.Equal(t, code == 0, r.outcome.Class == sinks.Acknowledged)
		for _, position := range r.refused {
			require.Contains(t, []int{0, 1}, position)
		}
	})
}

// TestSomethingElseListens: what is no Kafka ends neither the bridge nor any message.
func TestSomethingElseListens(t *testing.T) {
	t.Parallel()
	for _, greeting := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "\xff\xff\xff\xff", "\x15\x03\x03\x00\x02\x02\x46", "SSH-2.0-OpenSSH\r\n"} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1000))
				_, _ = io.WriteString(conn, greeting)
				_ = conn.Close()
			}
		})
		sink := newSink(t, Config{Brokers: []string{listener.Addr().String()}})
		require.ErrorIs(t, sink.Ping(t.Context()), errNotKafka)
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonConnection)
		require.NoError(t, listener.Close())
		serving.Wait()
	}
}

// replayConn is a connection whose server has sent everything already.
type replayConn struct {
	net.Conn

	said io.Reader
}

func (h *replayConn) Read(p []byte) (int, error)       { return h.said.Read(p) }
func (h *replayConn) Write(p []byte) (int, error)      { return len(p), nil }
func (h *replayConn) Close() error                     { return nil }
func (h *replayConn) SetReadDeadline(time.Time) error  { return nil }
func (h *replayConn) SetWriteDeadline(time.Time) error { return nil }
func (h *replayConn) SetDeadline(time.Time) error      { return nil }
