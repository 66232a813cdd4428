package sinktest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// publishPatience is for a busy machine.
const publishPatience = 2 * time.Minute

// NewMessage is a claimed message of an id of its own.
func NewMessage(t testing.TB, topic, key string) message.Message {
	t.Helper()
	return message.Message{
		ID: "id-" + rand.Text(), Topic: topic, Key: key, Queue: "orders", Body: []byte("body"),
		DueAt: time.UnixMilli(2_000), ScheduledAt: time.UnixMilli(1_000), Attempt: 1, Token: "0123456789abcdef",
	}
}

// Publish publishes a batch, and returns what became of each message.
func Publish(t testing.TB, sink sinks.Sink, batch ...message.Message) []sinks.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), publishPatience)
	defer cancel()
	return sinks.Publish(ctx, sink, batch)
}

// RequireOutcome requires the class and the reason.
func RequireOutcome(t testing.TB, outcome sinks.Outcome, class sinks.Class, reason sinks.Reason) {
	t.Helper()
	require.Equal(t, class.String()+" "+string(reason), outcome.Class.String()+" "+string(outcome.Reason), "%v", outcome.Err)
}

// Told are findings as the first letter of the level, and the code.
func Told(findings []check.Finding) []string {
	list := []string{}
	for _, f := range findings {
		list = append(list, strings.ToUpper(f.Level.String()[:1])+" "+f.Code)
	}
	return list
}
