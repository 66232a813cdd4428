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
	"github.com/delaybridge/delaybridge/internal/sinks/exchange"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	trust := tlsclient.Files{}.Explain(&net.OpError{Op: "remote error", Err: errors.New("certificate required")})
	answered := func(status int) error { return &answerError{"orders", status} }
	for _, c := range []struct {
		err    error
		how    exchange.Sent
		class  sinks.Class
		reason sinks.Reason
	}{
		{answered(301), exchange.Used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(304), exchange.Used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(400), exchange.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(401), exchange.Used, sinks.Unavailable, sinks.ReasonAuth},
		{answered(403), exchange.Used, sinks.Unavailable, sinks.ReasonAuth},
		{answered(404), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(405), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(408), exchange.Used, sinks.Unavailable, sinks.ReasonTimeout},
		{answered(409), exchange.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(410), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(413), exchange.Used, sinks.Permanent, sinks.ReasonTooLarge},
		{answered(421), exchange.Used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(422), exchange.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(425), exchange.Used, sinks.Unavailable, sinks.ReasonBroker},
		{answered(429), exchange.Used, sinks.Unavailable, sinks.ReasonThrottled},
		{answered(431), exchange.Used, sinks.Permanent, sinks.ReasonTooLarge},
		{answered(500), exchange.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(501), exchange.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(502), exchange.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(503), exchange.Used, sinks.Unavailable, sinks.ReasonBroker},
		{answered(504), exchange.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(507), exchange.Used, sinks.Unavailable, sinks.ReasonFull},
		{answered(101), exchange.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(999), exchange.Used, sinks.Unknown, sinks.ReasonBroker},
		{&message.InvalidError{Field: "header"}, exchange.Unsent, sinks.Permanent, sinks.ReasonInvalid},
		{errNoEndpoint, exchange.Unsent, sinks.Unavailable, sinks.ReasonTopicMissing},
		{exchange.ErrNoSlot, exchange.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{exchange.ErrTimeout, exchange.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{exchange.ErrTimeout, exchange.Fresh, sinks.Unknown, sinks.ReasonTimeout},
		{context.DeadlineExceeded, exchange.Used, sinks.Unknown, sinks.ReasonTimeout},
		{context.Canceled, exchange.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{exchange.ErrClosed, exchange.Unsent, sinks.Unavailable, sinks.ReasonClosed},
		{exchange.ErrClosed, exchange.Used, sinks.Unknown, sinks.ReasonClosed},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, exchange.Unsent, sinks.Unavailable, sinks.ReasonConnection},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, exchange.Unsent, sinks.Unavailable, sinks.ReasonConnection},
		{&net.DNSError{Err: "timeout", IsTimeout: true}, exchange.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{io.EOF, exchange.Used, sinks.Unknown, sinks.ReasonConnection},
		{syscall.ECONNRESET, exchange.Fresh, sinks.Unknown, sinks.ReasonConnection},
		{trust, exchange.Unsent, sinks.Unavailable, sinks.ReasonAuth},
		{trust, exchange.Fresh, sinks.Unavailable, sinks.ReasonAuth},
		{trust, exchange.Used, sinks.Unknown, sinks.ReasonAuth},
	} {
		outcome := classify(c.err, c.how)
		assert.Equal(t, fmt.Sprint(c.class, c.reason), fmt.Sprint(outcome.Class, outcome.Reason), "%v, %d", c.err, c.how)
		require.Error(t, outcome.Err)
	}
	require.True(t, classify(answered(502), exchange.Used).OfRoute)
	require.False(t, classify(answered(501), exchange.Used).OfRoute)
	require.True(t, classify(answered(500), exchange.Used).MaybeOut)
	require.False(t, classify(answered(422), exchange.Used).MaybeOut)
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
