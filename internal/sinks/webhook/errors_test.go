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
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	trust := tlsclient.Files{}.Explain(&net.OpError{Op: "remote error", Err: errors.New("certificate required")})
	answered := func(status int) error { return &answerError{"orders", status} }
	for _, c := range []struct {
		err    error
		how    overhttp.Sent
		class  sinks.Class
		reason sinks.Reason
	}{
		{answered(301), overhttp.Used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(304), overhttp.Used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(400), overhttp.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(401), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth},
		{answered(403), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth},
		{answered(404), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(405), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(408), overhttp.Used, sinks.Unavailable, sinks.ReasonTimeout},
		{answered(409), overhttp.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(410), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing},
		{answered(413), overhttp.Used, sinks.Permanent, sinks.ReasonTooLarge},
		{answered(421), overhttp.Used, sinks.Unavailable, sinks.ReasonUnroutable},
		{answered(422), overhttp.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(425), overhttp.Used, sinks.Unavailable, sinks.ReasonBroker},
		{answered(429), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled},
		{answered(431), overhttp.Used, sinks.Permanent, sinks.ReasonTooLarge},
		{answered(500), overhttp.Used, sinks.Retryable, sinks.ReasonRefused},
		{answered(501), overhttp.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(502), overhttp.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(503), overhttp.Used, sinks.Unavailable, sinks.ReasonBroker},
		{answered(504), overhttp.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(507), overhttp.Used, sinks.Unavailable, sinks.ReasonFull},
		{answered(101), overhttp.Used, sinks.Unknown, sinks.ReasonBroker},
		{answered(999), overhttp.Used, sinks.Unknown, sinks.ReasonBroker},
		{&message.InvalidError{Field: "header"}, overhttp.Unsent, sinks.Permanent, sinks.ReasonInvalid},
		{errNoEndpoint, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTopicMissing},
		{overhttp.ErrNoSlot, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{overhttp.ErrTimeout, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{overhttp.ErrTimeout, overhttp.Fresh, sinks.Unknown, sinks.ReasonTimeout},
		{context.DeadlineExceeded, overhttp.Used, sinks.Unknown, sinks.ReasonTimeout},
		{context.Canceled, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{overhttp.ErrClosed, overhttp.Unsent, sinks.Unavailable, sinks.ReasonClosed},
		{overhttp.ErrClosed, overhttp.Used, sinks.Unknown, sinks.ReasonClosed},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, overhttp.Unsent, sinks.Unavailable, sinks.ReasonConnection},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, overhttp.Unsent, sinks.Unavailable, sinks.ReasonConnection},
		{&net.DNSError{Err: "timeout", IsTimeout: true}, overhttp.Unsent, sinks.Unavailable, sinks.ReasonTimeout},
		{io.EOF, overhttp.Used, sinks.Unknown, sinks.ReasonConnection},
		{syscall.ECONNRESET, overhttp.Fresh, sinks.Unknown, sinks.ReasonConnection},
		{trust, overhttp.Unsent, sinks.Unavailable, sinks.ReasonAuth},
		{trust, overhttp.Fresh, sinks.Unavailable, sinks.ReasonAuth},
		{trust, overhttp.Used, sinks.Unknown, sinks.ReasonAuth},
	} {
		outcome := classify(c.err, c.how)
		assert.Equal(t, fmt.Sprint(c.class, c.reason), fmt.Sprint(outcome.Class, outcome.Reason), "%v, %d", c.err, c.how)
		require.Error(t, outcome.Err)
	}
	require.True(t, classify(answered(502), overhttp.Used).OfRoute)
	require.False(t, classify(answered(501), overhttp.Used).OfRoute)
	require.True(t, classify(answered(500), overhttp.Used).MaybeOut)
	require.False(t, classify(answered(422), overhttp.Used).MaybeOut)
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
