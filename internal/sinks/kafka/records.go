package kafka

import (
	"io"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

const (
	// maxRequestSize is how many bytes of records one request carries at most,
	// unless a single message has more. It is below message.max.bytes of a broker
	// (1,048,588 by default), which limits the batch as a whole, and no larger than
	// throughput needs: over a slow link all of a request waits for its last byte.
	maxRequestSize = 512 << 10
	// recordOverhead is the most that a record takes besides what follows.
	recordOverhead = 32
	// headerOverhead is the most that the lengths of a header take.
	headerOverhead = 6
	// ownHeaders is the most that the bridge's own headers take, without id and queue, and that the time of
	// delay-first-at is longer than it is stored.
	ownHeaders = len(message.HeaderUID+message.HeaderID+message.HeaderQueue+message.HeaderDueAt+message.HeaderScheduledAt+message.HeaderAttempt) +
		6*headerOverhead + 2*message.TokenLength + 3*len(message.TimeFormat) + 20
)

// recordSize is an upper bound of what a message takes in a request, in bytes.
func recordSize(m *message.Message) int {
	size := recordOverhead + len(m.Key) + len(m.Body) + ownHeaders + len(m.ID) + len(m.Queue)
	for name, value := range m.Headers {
		size += headerOverhead + len(name) + len(value)
	}
	return size
}

// records reads messages as Kafka records, once: for a second attempt a new one
// is needed, since kafka-go takes a consumed reader for an empty success.
type records struct {
	batch  []publication
	read   int
	record kafka.Record
	// Memory of the record.
	own     []message.Header
	headers []kafka.Header
	text    []byte
}

// ReadRecord implements [kafka.RecordReader]. The record is valid until the next call.
func (r *records) ReadRecord() (*kafka.Record, error) {
	if r.read == len(r.batch) {
		return nil, io.EOF
	}
	m := r.batch[r.read].message()
	r.read++
	r.own, r.headers = m.AppendHeaders(r.own[:0]), r.headers[:0]
	if r.text == nil {
		r.text = make([]byte, 0, 256) // An empty value is not null.
	}
	r.text = r.text[:0]
	for _, header := range r.own {
		r.headers = append(r.headers, kafka.Header{Key: header.Name, Value: r.bytes(header.Value)})
	}
	body := m.Body
	if body == nil {
		body = []byte{} // A nil value would be a tombstone on a compacted topic.
	}
	r.record = kafka.Record{Value: kafka.NewBytes(body), Headers: r.headers}
	if m.Key != "" {
		r.record.Key = kafka.NewBytes(r.bytes(m.Key))
	}
	return &r.record, nil
}

// bytes copies a text into the record's memory.
func (r *records) bytes(text string) []byte {
	from := len(r.text)
	r.text = append(r.text, text...)
	return r.text[from:len(r.text):len(r.text)]
}
