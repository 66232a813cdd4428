package message

import (
	"slices"
	"strings"
)

// Topics are those that a queue takes: names, in which * stands for any characters, none
// among them. Without any, it takes all.
type Topics []string

// Check reports whether the queue takes the topic; else its error is an [*InvalidError].
func (t Topics) Check(topic string) error {
	if len(t) == 0 || slices.ContainsFunc(t, func(pattern string) bool { return matches(pattern, topic) }) {
		return nil
	}
	return &InvalidError{Field: "topic", Value: topic, Limit: "the queue takes only " + t.String()}
}

// String lists the topics for people, the first of many.
func (t Topics) String() string {
	const shown = 8
	if len(t) > shown {
		return strings.Join(t[:shown], ", ") + ", …"
	}
	return strings.Join(t, ", ")
}

func matches(pattern, topic string) bool {
	first, rest, some := strings.Cut(pattern, "*")
	if !some {
		return topic == pattern
	}
	topic, isPrefix := strings.CutPrefix(topic, first)
	if !isPrefix {
		return false
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, part := range parts[:last] { // The first place is the best: it leaves most to the others.
		_, after, found := strings.Cut(topic, part)
		if !found {
			return false
		}
		topic = after
	}
	return strings.HasSuffix(topic, parts[last])
}
