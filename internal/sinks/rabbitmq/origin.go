package rabbitmq

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// countsOfBroker are the headers in which the broker counts deliveries: they are no part of
// the message.
var countsOfBroker = []string{"x-delivery-count", "x-acquired-count"}

// originOf is what a message of an inlet has besides its body. AMQP has no position of a
// message. Of the properties, the content's type and the correlation go on as headers.
func originOf(d *amqp.Delivery) source.Origin {
	o := source.Origin{MessageID: d.MessageId, Topic: d.RoutingKey, At: d.Timestamp}
	for name, value := range d.Headers {
		if !slices.Contains(countsOfBroker, name) {
			o.Add(name, textOf(value))
		}
	}
	for _, property := range []struct{ name, value string }{
		{contentType, d.ContentType}, {"correlation-id", d.CorrelationId}, {"reply-to", d.ReplyTo}, {"type", d.Type},
	} {
		if _, has := o.Headers[property.name]; !has && property.value != "" {
			o.Add(property.name, property.value)
		}
	}
	return o
}

// textOf is a header's value as text: we publish texts only. Lists and tables are JSON.
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case amqp.Table, []any:
		if text, err := json.Marshal(v); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(value)
}
