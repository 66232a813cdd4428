package store

import (
	"context"
	"strconv"
	"strings"
)

type topicsKey struct{}

// WithTopics returns a ctx whose calls of a producer touch messages of these topics only;
// none means all. The script that makes the change looks at the topic of the message that
// is there then: whoever asks before finds another one, perhaps. Of a message of another
// topic the answer is OtherTopic, and nothing else is told of it.
func WithTopics(ctx context.Context, topics []string) context.Context {
	if len(topics) == 0 {
		return ctx
	}
	return context.WithValue(ctx, topicsKey{}, packTopics(topics))
}

// packTopics is a list of topics as the scripts take it.
func packTopics(topics []string) string {
	var list strings.Builder
	for _, topic := range topics {
		list.WriteString(strconv.Itoa(len(topic)) + ":" + topic)
	}
	return list.String()
}

func topicsOf(ctx context.Context) string {
	topics, _ := ctx.Value(topicsKey{}).(string)
	return topics
}
