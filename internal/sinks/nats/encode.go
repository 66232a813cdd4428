package nats

import (
	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// writer turns messages into the client's form. Its memory is used again for
// the next message: the client copies.
type writer struct {
	msg     natsgo.Msg
	headers []message.Header
	values  []string
}

func (w *writer) encode(m *message.Message, reply string) *natsgo.Msg {
	w.headers = m.AppendHeaders(w.headers[:0])
	if w.msg.Header == nil {
		w.msg.Header = make(natsgo.Header, len(w.headers)+1)
	}
	clear(w.msg.Header)
	w.values = append(w.values[:0], m.ID+":"+m.Token)
	for _, header := range w.headers {
		w.values = append(w.values, header.Value)
	}
	// The token's width is fixed, so no two pairs of ID and token look alike.
	w.msg.Header[natsgo.MsgIdHdr] = w.values[:1:1]
	for i, header := range w.headers {
		w.msg.Header[header.Name] = w.values[i+1 : i+2 : i+2]
	}
	w.msg.Subject, w.msg.Reply, w.msg.Data = m.Topic, reply, m.Body
	return &w.msg
}
