package nats

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// FuzzAck holds parseAck against the client's own types, which it decodes like the client: what
// they do not say is stored is not acknowledged.
func FuzzAck(f *testing.F) {
	for _, data := range []string{
		`{"stream":"ORDERS", "seq":12}`, `{"stream":"ORDERS","seq":12,"duplicate":true}`, `{"stream":"ORDERS","domain":"hub","seq":12}`,
		`{"stream":"a\"b","seq":1}`, "{\"stream\":\"\x00\",\"seq\":1}", `{"stream":"a","seq":01}`, `{"stream":"a","seq":0}`,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"ORDERS","seq":0}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var ack struct {
			*jetstream.PubAck
			Error *jetstream.APIError `json:"error"`
		}
		err := json.Unmarshal(data, &ack)
		isStored := err == nil && ack.Error == nil && ack.PubAck != nil && ack.Stream != "" && ack.Sequence != 0
		outcome := parseAck(&natsgo.Msg{Data: data}, new(string))
		require.Equal(t, isStored, outcome.Class == sinks.Acknowledged, outcome.Err)
		if isStored && utf8.Valid(data) {
			require.Equal(t, ack.Stream, outcome.Place.Stream)
			require.Equal(t, ack.Sequence, outcome.Place.Number)
			require.Equal(t, ack.Duplicate, outcome.Duplicate)
		}
	})
}

// TestTheServersAck is plain, and tells us what it tells the client.
func TestTheServersAck(t *testing.T) {
	t.Parallel()
	nc, err := natsgo.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	name := testenv.Name(t, "stream")
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	for number := uint64(1); number <= 11; number++ {
		answer, err := nc.Request(name, nil, time.Minute)
		require.NoError(t, err)
		stream, sequence, isPlain := cutPlainAck(answer.Data, "")
		require.True(t, isPlain, "each ack costs the decoder's time: %s", answer.Data)
		require.Equal(t, name, string(stream))
		require.Equal(t, number, sequence)
	}
	m := &natsgo.Msg{Subject: name, Header: natsgo.Header{natsgo.MsgIdHdr: {"id"}}}
	ack, err := js.PublishMsg(t.Context(), m)
	require.NoError(t, err)
	answer, err := nc.RequestMsg(m, time.Minute)
	require.NoError(t, err)
	outcome := parseAck(answer, new(string))
	require.Equal(t, sinks.Place{IsKnown: true, Stream: ack.Stream, Number: ack.Sequence}, outcome.Place)
	require.True(t, outcome.Duplicate)
}

// FuzzWriter writes a message behind another one, in the same memory: nothing of the first is left.
func FuzzWriter(f *testing.F) {
	f.Add("id", "a", "1", "id", "b", "2")
	f.Add("id", "a", "1", "other", "a", "")
	f.Add("id", "Nats-Msg-Id", "x", "id", "traceparent", "00-1-2-01")
	f.Fuzz(func(t *testing.T, firstID, firstName, firstValue, id, name, value string) {
		first := message.Message{ID: firstID, Token: "1", Topic: "first", Body: []byte("first"), Headers: map[string]string{firstName: firstValue, "more": ""}}
		m := message.Message{ID: id, Token: "2", Topic: "second", Body: []byte("second"), Headers: map[string]string{name: value}}
		w := newWriter()
		w.encode(&first, "_INBOX.x.", 41)
		got := w.encode(&m, "_INBOX.x.", 42)
		headers := natsgo.Header{natsgo.MsgIdHdr: {m.ID + ":" + m.Token}}
		for _, header := range m.PublishedHeaders() {
			headers[header.Name] = []string{header.Value}
		}
		require.Equal(t, &natsgo.Msg{Subject: m.Topic, Reply: "_INBOX.x.42", Data: m.Body, Header: headers}, got)
	})
}
