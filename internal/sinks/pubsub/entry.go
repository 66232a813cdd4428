package pubsub

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// Limits of Pub/Sub, which counts a megabyte as 1,000,000 bytes.
const (
	// messagesMost is how many messages it takes in a request.
	messagesMost   = 1000
	attributesMost = 100
	nameMost       = 256
	keyMost        = 1024
	// sizeMost is how large a message may be, with its attributes and its ordering key, in bytes.
	sizeMost = 10_000_000
)

// entry is a message as Pub/Sub takes it.
type entry struct {
	text  []byte // PubsubMessage in JSON
	index int    // in the batch
}

type pubsubMessage struct {
	Data        []byte            `json:"data,omitempty"` // base64 in the text
	Attributes  map[string]string `json:"attributes"`
	OrderingKey string            `json:"orderingKey,omitempty"`
}

// newEntry makes the entry of a message, by its index in the batch. Nothing refers to the message
// afterwards. The error says why Pub/Sub could never take it.
func newEntry(m *message.Message, index int) (entry, error) {
	if err := message.CheckTopic(message.PubSub, m.Topic); err != nil {
		return entry{}, err
	}
	if len(m.Key) > keyMost || !utf8.ValidString(m.Key) {
		return entry{}, &message.InvalidError{Field: "key", Value: m.Key, Limit: fmt.Sprintf("%d bytes, an ordering key of Pub/Sub is UTF-8 of at most %d", len(m.Key), keyMost)}
	}
	headers := m.PublishedHeaders()
	if len(headers) > attributesMost {
		return entry{}, &message.InvalidError{Field: "header", Value: fmt.Sprintf("%d headers", len(headers)), Limit: fmt.Sprintf("Pub/Sub takes %d, the bridge's own among them", attributesMost)}
	}
	size := len(m.Body) + len(m.Key)
	attributes := make(map[string]string, len(headers))
	for _, header := range headers {
		if err := message.CheckHeader(message.PubSub, header.Name, header.Value); err != nil {
			return entry{}, err
		}
		if len(header.Name) > nameMost {
			return entry{}, &message.InvalidError{Field: "header", Value: header.Name, Limit: fmt.Sprintf("the name has %d bytes, Pub/Sub takes %d", len(header.Name), nameMost)}
		}
		attributes[header.Name] = header.Value
		size += len(header.Name) + len(header.Value)
	}
	if size > sizeMost {
		return entry{}, &overhttp.TooLargeError{Service: service, Size: size, Most: sizeMost}
	}
	text, err := json.Marshal(pubsubMessage{m.Body, attributes, m.Key})
	return entry{text, index}, err
}

// requestOf is the body of a request.
func requestOf(entries []entry) []byte {
	text := []byte(`{"messages":[`)
	for n, e := range entries {
		if n > 0 {
			text = append(text, ',')
		}
		text = append(text, e.text...)
	}
	return append(text, "]}"...)
}
