package pubsub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	trust := tlsclient.Files{}.Explain(&net.OpError{Op: "remote error", Err: errors.New("certificate required")})
	answered := func(status int, code string) error { return &answerError{status, code, "message"} }
	for _, c := range []struct {
		err    error
		how    overhttp.Sent
		class  sinks.Class
		reason sinks.Reason
		whole  bool
	}{
		{answered(404, "NOT_FOUND"), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(403, "PERMISSION_DENIED"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(401, "UNAUTHENTICATED"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(429, "RESOURCE_EXHAUSTED"), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(429, ""), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "FAILED_PRECONDITION"), overhttp.Used, sinks.Unavailable, sinks.ReasonBroker, false},
		{answered(400, "INVALID_ARGUMENT"), overhttp.Used, sinks.Permanent, sinks.ReasonInvalid, false},
		{answered(413, ""), overhttp.Used, sinks.Permanent, sinks.ReasonTooLarge, false},
		{answered(400, "OUT_OF_RANGE"), overhttp.Used, sinks.Retryable, sinks.ReasonRefused, false},
		{answered(501, "UNIMPLEMENTED"), overhttp.Used, sinks.Retryable, sinks.ReasonRefused, false},
		{answered(404, ""), overhttp.Used, sinks.Unavailable, sinks.ReasonBroker, false},
		{answered(409, "ABORTED"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(499, "CANCELLED"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(500, "INTERNAL"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(500, "UNKNOWN"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(503, "UNAVAILABLE"), overhttp.Fresh, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(504, "DEADLINE_EXCEEDED"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(408, ""), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(502, ""), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(501, ""), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(301, ""), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{errNoAnswer, overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{&overhttp.LoginError{Cause: answered(403, "PERMISSION_DENIED")}, overhttp.Unsent, sinks.Unavailable, sinks.ReasonAuth, true},
		{&overhttp.LoginError{Cause: answered(500, "INTERNAL")}, overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, true}, // The token service's answer.
		{&message.InvalidError{Field: "topic"}, overhttp.Unsent, sinks.Permanent, sinks.ReasonInvalid, false},
		{&overhttp.TooLargeError{Size: sizeMost + 1}, overhttp.Unsent, sinks.Permanent, sinks.ReasonTooLarge, false},
		{overhttp.ErrNoSlot, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTimeout, false},
		{overhttp.ErrTimeout, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTimeout, false},
		{overhttp.ErrTimeout, overhttp.Fresh, sinks.Unknown, sinks.ReasonTimeout, false},
		{context.Canceled, overhttp.Used, sinks.Unknown, sinks.ReasonTimeout, false},
		{overhttp.ErrClosed, overhttp.Unsent, sinks.Unavailable, sinks.ReasonClosed, true},
		{overhttp.ErrClosed, overhttp.Used, sinks.Unknown, sinks.ReasonClosed, false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, overhttp.Unsent, sinks.Unavailable, sinks.ReasonConnection, true},
		{io.EOF, overhttp.Used, sinks.Unknown, sinks.ReasonConnection, false},
		{trust, overhttp.Unsent, sinks.Unavailable, sinks.ReasonAuth, true},
		{trust, overhttp.Fresh, sinks.Unavailable, sinks.ReasonAuth, false},
		{trust, overhttp.Used, sinks.Unknown, sinks.ReasonAuth, false},
	} {
		outcome := classify(c.err, c.how)
		assert.Equal(t, fmt.Sprint(c.class, c.reason, c.whole), fmt.Sprint(outcome.Class, outcome.Reason, outcome.Whole), "%v, %d", c.err, c.how)
		require.Error(t, outcome.Err)
		if outcome.IsAnswer() {
			require.NotContains(t, outcome.Err.Error(), ": message", "it may repeat what was sent")
		}
	}
	require.True(t, classify(answered(503, "UNAVAILABLE"), overhttp.Used).OfRoute)
	require.Len(t, answerOf(400, []byte(`{"error":{"message":"`+string(make([]byte, 0))+fmt.Sprintf("%1000d", 7)+`"}}`)).(*answerError).message, messageShown) //nolint:errorlint // it wraps none
}
