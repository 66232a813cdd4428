package message

import "strings"

// OutboxMark begins the token of an outbox message: one that a row of a database
// or a compensation message stands for, and that several writers may bring to
// Redis under that token.
const OutboxMark = "~"

// TracedMark begins the token of an outbox message without a row.
const TracedMark = OutboxMark + OutboxMark

// IsOutboxToken reports whether the token is that of an outbox message.
func IsOutboxToken(token string) bool {
	return len(token) == TokenLength && strings.HasPrefix(token, OutboxMark)
}

// IsRowToken reports whether the token is that of an outbox message with a row.
func IsRowToken(token string) bool {
	return IsOutboxToken(token) && !strings.HasPrefix(token, TracedMark)
}
