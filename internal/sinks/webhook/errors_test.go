package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	trust := tlsclient.Files{}.Explain(&net.OpError{Op: "remote error", Err: errors.New("certificate required")})
	answered := func(status int) error { return &answerError{"orders", status} }
	for _, c := range []struct {
		err    error
		how    sent
		class  sinks.Class
		reason sinks.Reason
	}{
		{answered(301), used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(304), used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(400), used, sinks.Retryable, sinks.ReasonRefused},
		{answered(401), used, sinks.Unavailable, sinks.ReasonAuth},
		{answered(403), used, sinks.Unavailable, sinks.ReasonAuth},
		{answered(404), used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(405), used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(408), used, sinks.Unavailable, sinks.ReasonTimeout},
		{answered(409), used, sinks.Retryable, sinks.ReasonRefused},
		{answered(410), used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(413), used, sinks.Permanent, sinks.ReasonTooLarge},
		{answered(421), used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(422), used, sinks.Retryable, sinks.ReasonRefused},
		{answered(425), used, sinks.Unavailable, sinks.ReasonBroker},
		{answered(429), used, sinks.Unavailable, sinks.ReasonThrottled},
		{answered(431), used, sinks.Permanent, sinks.ReasonTooLarge},
		{answered(500), used, sinks.Retryable, sinks.ReasonRefused},
		{answered(501), used, sinks.Unknown, sinks.ReasonBroker},
		{answered(502), used, sinks.Unknown, sinks.ReasonBroker},
		{answered(503), used, sinks.Unavailable, sinks.ReasonBroker},
		{answered(504), used, sinks.Unknown, sinks.ReasonBroker},
		{answered(507), used, sinks.Unavailable, sinks.ReasonFull},
		{answered(101), used, sinks.Unknown, sinks.ReasonBroker},
		{answered(999), used, sinks.Unknown, sinks.ReasonBroker},
		{&message.InvalidError{Field: "header"}, unsent, sinks.Permanent, sinks.ReasonInvalid},
		{errNoEndpoint, unsent, sinks.Unavailable, sinks.ReasonTopicMissing},
		{errNoSlot, unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{errTimeout, unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{errTimeout, fresh, sinks.Unknown, sinks.ReasonTimeout},
		{context.DeadlineExceeded, used, sinks.Unknown, sinks.ReasonTimeout},
		{context.Canceled, unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{errClosed, unsent, sinks.Unavailable, sinks.ReasonClosed},
		{errClosed, used, sinks.Unknown, sinks.ReasonClosed},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, unsent, sinks.Unavailable, sinks.ReasonConnection},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, unsent, sinks.Unavailable, sinks.ReasonConnection},
		{&net.DNSError{Err: "timeout", IsTimeout: true}, unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{io.EOF, used, sinks.Unknown, sinks.ReasonConnection},
		{syscall.ECONNRESET, fresh, sinks.Unknown, sinks.ReasonConnection},
		{trust, unsent, sinks.Unavailable, sinks.ReasonAuth},
		{trust, fresh, sinks.Unavailable, sinks.ReasonAuth},
		{trust, used, sinks.Unknown, sinks.ReasonAuth},
	} {
		outcome := classify(c.err, c.how)
		assert.Equal(t, fmt.Sprint(c.class, c.reason), fmt.Sprint(outcome.Class, outcome.Reason), "%v, %d", c.err, c.how)
		require.Error(t, outcome.Err)
	}
	require.True(t, classify(answered(502), used).OfRoute)
	require.False(t, classify(answered(501), used).OfRoute)
	require.True(t, classify(answered(500), used).MaybeOut)
	require.False(t, classify(answered(422), used).MaybeOut)
}

func TestPauseOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		after  string
		want   time.Duration
	}{
		{429, "7", 7 * time.Second},
		{429, " 7 ", 7 * time.Second},
		{503, now.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		{503, now.Add(-time.Minute).Format(http.TimeFormat), 0},
		{500, "3", 3 * time.Second},
		{429, "86400", time.Hour},
		{429, "2147483647", time.Hour},
		{429, "99999999999999999999", 0},
		{429, "-1", 0},
		{429, "1.5", 0},
		{429, "soon", 0},
		{429, "", 0},
		{301, "7", 0},
		{400, "7", 0},
	} {
		answer := &http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {c.after}}}
		assert.Equal(t, c.want, pauseOf(answer, now), "%d %q", c.status, c.after)
	}
}

// What has waited since before a failure fares no better, and is not tried: what comes after it is.
func TestMayAsk(t *testing.T) {
	t.Parallel()
	e := &endpoint{name: "orders"}
	before := time.Now().Add(-time.Second)
	_, ok := e.mayAsk(before)
	require.True(t, ok)
	e.note(classify(io.EOF, used), false, 0)
	refusal, ok := e.mayAsk(before)
	require.False(t, ok)
	require.Equal(t, sinks.Unavailable, refusal.Class, "it was not handed over")
	require.Equal(t, sinks.ReasonConnection, refusal.Reason)
	_, ok = e.mayAsk(time.Now().Add(time.Second))
	require.True(t, ok)

	e.note(classify(&answerError{"orders", http.StatusGatewayTimeout}, used), true, time.Minute)
	refusal, ok = e.mayAsk(time.Now().Add(time.Second))
	require.False(t, ok)
	require.Equal(t, sinks.Unavailable, refusal.Class)
	require.False(t, refusal.OfRoute)
}
