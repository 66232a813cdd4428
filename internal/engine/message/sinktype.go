package message

import (
	"maps"
	"slices"
	"strings"
)

// SinkType names a kind of broker; its rules decide which topics and headers are valid.
type SinkType string

// The kinds of brokers that the bridge publishes to.
const (
	Kafka    SinkType = "kafka"
	NATS     SinkType = "nats"
	PubSub   SinkType = "pubsub"
	RabbitMQ SinkType = "rabbitmq"
	Redis    SinkType = "redis" // Streams
	SQS      SinkType = "sqs"
	Webhook  SinkType = "webhook"
)

// rule is what a kind of broker always refuses, so that a producer gets the error when it schedules.
type rule struct {
	longest int                       // topic, in bytes; 0: MaxTopicLength
	topic   func(topic string) string // the limit that a topic exceeds, or ""; nil: none
	refused string                    // characters that no header's name may have
	header  func(name string) string  // the limit that a header's name exceeds, or ""; nil: none
	value   int                       // a header's value, in bytes; 0: no limit of its own
}

// separators are the characters that no name of a header has in HTTP (RFC 9110), besides those that no broker takes.
const separators = `"(),/;<=>?@[\]{}`

var rules = map[SinkType]rule{
	Kafka: {longest: 249, topic: kafkaTopic},
	// nats.go does not send names with the separators of RFC 9110.
	NATS:     {topic: natsSubject, refused: separators},
	PubSub:   {topic: pubsubTopic, header: pubsubHeader, value: 1024},
	RabbitMQ: {},
	Redis:    {},
	SQS:      {longest: 80, topic: sqsQueue},
	Webhook:  {longest: 63, topic: webhookEndpoint, refused: separators, header: webhookHeader},
}

// SinkTypes are all kinds, sorted.
func SinkTypes() []SinkType { return slices.Sorted(maps.Keys(rules)) }

const plainBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

func kafkaTopic(topic string) string {
	switch {
	case topic == "." || topic == "..": // as org.apache.kafka.common.internals.Topic
		return `a Kafka topic cannot be "." or ".."`
	case strings.Trim(topic, plainBytes) != "":
		return "a Kafka topic has only A-Z a-z 0-9 . _ -"
	default:
		return ""
	}
}

func natsSubject(subject string) string {
	switch {
	case strings.ContainsAny(subject, " *>"):
		return "a NATS subject has no space, control character, * or >"
	case subject[0] == '.' || subject[len(subject)-1] == '.' || strings.Contains(subject, ".."):
		return "a NATS subject has no empty token"
	case subject[0] == '$' || subject == "_INBOX" || strings.HasPrefix(subject, "_INBOX."):
		return "a NATS subject that starts with $ or _INBOX is the server's own"
	default:
		return ""
	}
}

const googleOwn = "goog"

func pubsubTopic(topic string) string {
	isLetter := topic[0]|0x20 >= 'a' && topic[0]|0x20 <= 'z'
	switch {
	case len(topic) < 3 || !isLetter || strings.Trim(topic, plainBytes+"~+%") != "":
		return "a topic of Pub/Sub has 3 to 255 of A-Z a-z 0-9 - . _ ~ + %, the first a letter; the project is the sink's"
	case strings.HasPrefix(topic, googleOwn):
		return "a topic of Pub/Sub that begins with goog is Google's own"
	default:
		return ""
	}
}

func pubsubHeader(name string) string {
	if strings.HasPrefix(name, googleOwn) {
		return "an attribute of Pub/Sub that begins with goog is Google's own"
	}
	return ""
}

func sqsQueue(name string) string {
	if name = strings.TrimSuffix(name, ".fifo"); name == "" || strings.Trim(name, plainBytes) != "" || strings.Contains(name, ".") {
		return "a queue of SQS has only A-Z a-z 0-9 _ -, and .fifo at the end of one that keeps the order"
	}
	return ""
}

func webhookEndpoint(name string) string {
	if !QueueName.MatchString(name) {
		return "a webhook's topic is the name of an endpoint: " + QueueNameRule
	}
	return ""
}

// httpOwn are the names of headers by which HTTP delimits and routes requests, and by which
// whoever sends one is known. Those that end with a dash are the beginnings of names.
var httpOwn = []string{
	"webhook-", "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
	"authorization", "cookie", "proxy-", "forwarded", "x-forwarded-", "x-real-ip",
}

func webhookHeader(name string) string {
	name = strings.ToLower(name)
	for _, own := range httpOwn {
		if name == own || strings.HasSuffix(own, "-") && strings.HasPrefix(name, own) {
			return "webhook-*, and what HTTP itself or a login needs (" + own + "), are the bridge's own"
		}
	}
	return ""
}
