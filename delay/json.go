package delay

import (
	"encoding/json"
	"fmt"
)

// JSON is a topic whose messages have bodies of type T, as JSON. Producers and
// consumers that share it agree on topic and type:
//
//	const OrderTimeout = delay.JSON[Order]("order.timeout")
//
//	m, err := OrderTimeout.Message("order-42/timeout", Order{Number: 42})
//	order, err := OrderTimeout.Decode(body)
type JSON[T any] string

// Message returns a message to the topic with that ID and the header content-type. The
// caller may set its other fields. The error is that of [json.Marshal].
func (topic JSON[T]) Message(id string, body T) (Message, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return Message{}, fmt.Errorf("encode body of %s: %w", topic, err)
	}
	return Message{
		ID: id, Topic: string(topic), Body: encoded, Headers: map[string]string{"content-type": "application/json"},
	}, nil
}

// Decode decodes the body of a message to the topic. The error is that of
// [json.Unmarshal].
func (topic JSON[T]) Decode(body []byte) (T, error) {
	var decoded T
	if err := json.Unmarshal(body, &decoded); err != nil {
		return decoded, fmt.Errorf("decode body of %s: %w", topic, err)
	}
	return decoded, nil
}
