package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	api := func(code int) error {
		return fmt.Errorf("publish: %w", &jetstream.APIError{ErrorCode: jetstream.ErrorCode(code)})
	}
	fault := func(code int) error { return &jetstream.APIError{Code: 503, ErrorCode: jetstream.ErrorCode(code)} }
	storeFailed := func(description string) error {
		return &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: description}
	}
	const route, whole = false, true
	for _, c := range []struct {
		err    error
		class  sinks.Class
		reason sinks.Reason
		whole  bool
	}{
		{api(10054), sinks.Permanent, sinks.ReasonTooLarge, route},
		{api(10097), sinks.Permanent, sinks.ReasonTooLarge, route},
		{natsgo.ErrMaxPayload, sinks.Permanent, sinks.ReasonTooLarge, route},
		{message.CheckTopic(message.NATS, "a b"), sinks.Permanent, sinks.ReasonInvalid, route},
		{natsgo.ErrBadSubject, sinks.Permanent, sinks.ReasonInvalid, route},
		{natsgo.ErrBadHeaderMsg, sinks.Permanent, sinks.ReasonInvalid, route},
		{api(10071), sinks.Retryable, sinks.ReasonRefused, route}, // wrong last sequence
		{api(19999), sinks.Retryable, sinks.ReasonRefused, route}, // a code of a later server, the request's fault
		{fault(19999), sinks.Unknown, sinks.ReasonBroker, route},  // and its own: before or after it was stored
		{fault(10063), sinks.Unknown, sinks.ReasonBroker, route},  // a leader that cannot apply what the replicas have agreed on
		{api(10059), sinks.Unavailable, sinks.ReasonTopicMissing, route},
		{jetstream.ErrStreamNotFound, sinks.Unavailable, sinks.ReasonTopicMissing, route},
		{storeFailed("maximum messages exceeded"), sinks.Unavailable, sinks.ReasonFull, route},
		{storeFailed("maximum bytes exceeded"), sinks.Unavailable, sinks.ReasonFull, route},
		{storeFailed("maximum messages per subject exceeded"), sinks.Unavailable, sinks.ReasonFull, route},
		{storeFailed("message too large"), sinks.Permanent, sinks.ReasonTooLarge, route},
		{storeFailed("store is closed"), sinks.Unknown, sinks.ReasonBroker, route}, // the leader's, and the others have stored it
		{storeFailed("no space left on device"), sinks.Unknown, sinks.ReasonBroker, route},
		{api(10002), sinks.Unavailable, sinks.ReasonFull, route}, // of the account, for one kind of storage
		{api(10023), sinks.Unavailable, sinks.ReasonFull, route},
		{api(10028), sinks.Unavailable, sinks.ReasonFull, route},
		{api(10047), sinks.Unavailable, sinks.ReasonFull, route},
		{api(10109), sinks.Unavailable, sinks.ReasonRefused, route}, // sealed
		{api(10118), sinks.Unavailable, sinks.ReasonRefused, route}, // stream offline
		{api(10194), sinks.Unavailable, sinks.ReasonRefused, route},
		{api(10167), sinks.Unavailable, sinks.ReasonThrottled, route},
		{fmt.Errorf("x: %w", natsgo.ErrPermissionViolation), sinks.Unavailable, sinks.ReasonAuth, route},
		{api(10158), sinks.Unknown, sinks.ReasonBroker, route},
		{api(10007), sinks.Unavailable, sinks.ReasonBroker, route},
		{api(10008), sinks.Unavailable, sinks.ReasonBroker, route},
		{api(10009), sinks.Unavailable, sinks.ReasonBroker, route},
		{api(10035), sinks.Unavailable, sinks.ReasonBroker, whole},
		{api(10039), sinks.Unavailable, sinks.ReasonBroker, whole},
		{api(10076), sinks.Unavailable, sinks.ReasonBroker, whole},
		{natsgo.ErrNoResponders, sinks.Unavailable, sinks.ReasonBroker, route},
		{natsgo.ErrHeadersNotSupported, sinks.Unavailable, sinks.ReasonBroker, whole},
		{natsgo.ErrConnectionClosed, sinks.Unavailable, sinks.ReasonConnection, whole},
		{errInvalidAck, sinks.Unknown, sinks.ReasonBroker, route},
		{errNoAnswer, sinks.Unknown, sinks.ReasonTimeout, route},
		{io.ErrUnexpectedEOF, sinks.Unknown, sinks.ReasonConnection, whole},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, sinks.Unknown, sinks.ReasonConnection, whole},
		{&net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}, sinks.Unknown, sinks.ReasonTimeout, whole},
		{errors.New("anything else"), sinks.Unknown, sinks.ReasonConnection, whole},
	} {
		outcome := classify(c.err)
		assert.Equal(t, c.class.String(), outcome.Class.String(), c.err)
		assert.Equal(t, c.reason, outcome.Reason, c.err)
		assert.Equal(t, c.whole, outcome.Whole, c.err)
		var refusal *jetstream.APIError // which is of the route, and no proof
		assert.Equal(t, c.class == sinks.Unknown && errors.As(c.err, &refusal) && refusal.Code == 503, outcome.OfRoute, c.err)
		assert.ErrorIs(t, outcome.Err, c.err)
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		reason sinks.Reason
	}{
		{errClosed, sinks.ReasonClosed},
		{loginError{errors.New("no such file")}, sinks.ReasonAuth},
		{errors.Join(syscall.ECONNREFUSED, fmt.Errorf("b: %w", natsgo.ErrAuthorization)), sinks.ReasonAuth},
		{fmt.Errorf("a: %w", natsgo.ErrAuthExpired), sinks.ReasonAuth},
		{fmt.Errorf("%w: %w", natsgo.ErrTLS, io.EOF), sinks.ReasonAuth},
		{natsgo.ErrSecureConnWanted, sinks.ReasonAuth},
		{&net.OpError{Op: "remote error", Err: errors.New("certificate required")}, sinks.ReasonAuth},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, sinks.ReasonConnection},
		{fmt.Errorf("a: %w", context.Canceled), sinks.ReasonTimeout},
		{syscall.ECONNREFUSED, sinks.ReasonConnection},
		{natsgo.ErrStaleConnection, sinks.ReasonConnection},
		{fmt.Errorf("a: %w", errSilent), sinks.ReasonTimeout},
		{fmt.Errorf("acks: %w", natsgo.ErrPermissionViolation), sinks.ReasonAuth},
	} {
		assert.Equal(t, c.reason, why(c.err), c.err)
	}
}

func TestParseAck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data      string
		class     sinks.Class
		duplicate bool
		place     string
	}{
		{`{"stream":"ORDERS", "seq":12}`, sinks.Acknowledged, false, "stream ORDERS sequence 12"},
		{`{"stream":"ORDERS","seq":18446744073709551615}`, sinks.Acknowledged, false, "stream ORDERS sequence 18446744073709551615"},
		{`{"stream":"ORDERS","domain":"hub","seq":12}`, sinks.Acknowledged, false, "stream ORDERS sequence 12"},
		{`{"stream":"ORDERS","seq":12,"duplicate":true}`, sinks.Acknowledged, true, "stream ORDERS sequence 12"},
		{`{"stream":"ORDERS","seq":12,"val":"7"}`, sinks.Acknowledged, false, "stream ORDERS sequence 12"},
		{`{"type":"x","error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"ORDERS","seq":0}`, sinks.Unavailable, false, ""},
		{`{"error":{"code":503,"err_code":10077,"description":"store is closed"},"stream":"ORDERS","seq":0}`, sinks.Unknown, false, ""},
		{`{"error":{"code":503,"err_code":10063,"description":"expected stream sequence does not match"},"stream":"ORDERS","seq":0}`, sinks.Unknown, false, ""},
		{`{"stream":"ORDERS","seq":0,"error":{"code":400,"err_code":10054}}`, sinks.Permanent, false, ""},
		{`{"stream":"ORDERS","seq":0,"duplicate":true}`, sinks.Unknown, false, ""},
		{`{"stream":"ORDERS","seq":0}`, sinks.Unknown, false, ""},
		{`{"stream":"","seq":12}`, sinks.Unknown, false, ""},
		{`{"seq":12}`, sinks.Unknown, false, ""},
		{`{"stream":"ORDERS","seq":}`, sinks.Unknown, false, ""},
		{`{"stream":"ORDERS","seq":1`, sinks.Unknown, false, ""},
		{`+OK`, sinks.Unknown, false, ""},
		{``, sinks.Unknown, false, ""},
	} {
		var last string
		outcome := parseAck(&natsgo.Msg{Data: []byte(c.data)}, &last)
		assert.Equal(t, c.place, outcome.Place.String(), c.data)
		assert.Equal(t, c.class.String(), outcome.Class.String(), c.data)
		assert.Equal(t, c.duplicate, outcome.Duplicate, c.data)
	}
	noResponders := parseAck(&natsgo.Msg{Header: natsgo.Header{"Status": {"503"}}}, new(string))
	assert.ErrorIs(t, noResponders.Err, errNoResponders)
	assert.Equal(t, sinks.Unavailable, noResponders.Class)
}
