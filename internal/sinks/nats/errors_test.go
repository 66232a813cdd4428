package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	api := func(code int) error {
		return fmt.Errorf("publish: %w", &jetstream.APIError{ErrorCode: jetstream.ErrorCode(code)})
	}
	for _, c := range []struct {
		err    error
		class  sinks.Class
		reason sinks.Reason
	}{
		{api(10054), sinks.Permanent, sinks.ReasonTooLarge},
		{api(10097), sinks.Permanent, sinks.ReasonTooLarge},
		{natsgo.ErrMaxPayload, sinks.Permanent, sinks.ReasonTooLarge},
		{message.CheckTopic(message.NATS, "a b"), sinks.Permanent, sinks.ReasonInvalid},
		{natsgo.ErrBadSubject, sinks.Permanent, sinks.ReasonInvalid},
		{natsgo.ErrBadHeaderMsg, sinks.Permanent, sinks.ReasonInvalid},
		{api(10059), sinks.Retryable, sinks.ReasonTopicMissing},
		{jetstream.ErrStreamNotFound, sinks.Retryable, sinks.ReasonTopicMissing},
		{api(10077), sinks.Retryable, sinks.ReasonRefused}, // maximum messages exceeded
		{api(10109), sinks.Retryable, sinks.ReasonRefused}, // sealed
		{api(10118), sinks.Retryable, sinks.ReasonRefused}, // stream offline
		{api(19999), sinks.Retryable, sinks.ReasonRefused}, // a code of a later server
		{api(10167), sinks.Retryable, sinks.ReasonThrottled},
		{fmt.Errorf("x: %w", natsgo.ErrPermissionViolation), sinks.Retryable, sinks.ReasonAuth},
		{api(10158), sinks.Unknown, sinks.ReasonBroker},
		{api(10002), sinks.Unavailable, sinks.ReasonBroker},
		{api(10008), sinks.Unavailable, sinks.ReasonBroker},
		{api(10023), sinks.Unavailable, sinks.ReasonBroker},
		{api(10039), sinks.Unavailable, sinks.ReasonBroker},
		{api(10076), sinks.Unavailable, sinks.ReasonBroker},
		{natsgo.ErrNoResponders, sinks.Unavailable, sinks.ReasonBroker},
		{natsgo.ErrHeadersNotSupported, sinks.Unavailable, sinks.ReasonBroker},
		{natsgo.ErrConnectionClosed, sinks.Unavailable, sinks.ReasonConnection},
		{errInvalidAck, sinks.Unknown, sinks.ReasonBroker},
		{io.ErrUnexpectedEOF, sinks.Unknown, sinks.ReasonConnection},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, sinks.Unknown, sinks.ReasonConnection},
		{context.DeadlineExceeded, sinks.Unknown, sinks.ReasonTimeout},
		{errors.New("anything else"), sinks.Unknown, sinks.ReasonConnection},
	} {
		outcome := classify(c.err)
		assert.Equal(t, c.class.String(), outcome.Class.String(), c.err)
		assert.Equal(t, c.reason, outcome.Reason, c.err)
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
	}{
		{`{"stream":"ORDERS", "seq":12}`, sinks.Acknowledged, false},
		{`{"stream":"ORDERS","seq":18446744073709551615}`, sinks.Acknowledged, false},
		{`{"stream":"ORDERS","domain":"hub","seq":12}`, sinks.Acknowledged, false},
		{`{"stream":"ORDERS","seq":12,"duplicate":true}`, sinks.Acknowledged, true},
		{`{"stream":"ORDERS","seq":12,"val":"7"}`, sinks.Acknowledged, false},
		{`{"type":"x","error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"ORDERS","seq":0}`, sinks.Retryable, false},
		{`{"stream":"ORDERS","seq":0,"error":{"code":400,"err_code":10054}}`, sinks.Permanent, false},
		{`{"stream":"","seq":12}`, sinks.Unknown, false},
		{`{"seq":12}`, sinks.Unknown, false},
		{`{"stream":"ORDERS","seq":}`, sinks.Unknown, false},
		{`{"stream":"ORDERS","seq":1`, sinks.Unknown, false},
		{`+OK`, sinks.Unknown, false},
		{``, sinks.Unknown, false},
	} {
		outcome := parseAck(&natsgo.Msg{Data: []byte(c.data)})
		assert.Equal(t, c.class.String(), outcome.Class.String(), c.data)
		assert.Equal(t, c.duplicate, outcome.Duplicate, c.data)
	}
	noResponders := parseAck(&natsgo.Msg{Header: natsgo.Header{"Status": {"503"}}})
	assert.ErrorIs(t, noResponders.Err, errNoResponders)
	assert.Equal(t, sinks.Unavailable, noResponders.Class)
}

// FuzzPlainAck holds the short cut against the decoder: it may miss an ack, but
// never see one where there is none.
func FuzzPlainAck(f *testing.F) {
	f.Add([]byte(`{"stream":"ORDERS", "seq":12}`))
	f.Add([]byte(`{"stream":"a\"b","seq":1}`))
	f.Add([]byte("{\"stream\":\"\x00\",\"seq\":1}"))
	f.Add([]byte(`{"stream":"a","seq":01}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !isPlainAck(data) {
			return
		}
		var ack struct {
			Stream string
			Seq    json.Number
			Error  json.RawMessage
		}
		if err := json.Unmarshal(data, &ack); err != nil || ack.Stream == "" || ack.Error != nil {
			t.Fatalf("%q: %v", data, err)
		}
	})
}
