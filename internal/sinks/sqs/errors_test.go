package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/exchange"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// answered is an error as the client makes it of an answer.
func answered(status int, code string) error {
	response := &smithyhttp.Response{Response: &http.Response{StatusCode: status}}
	return &smithy.OperationError{ServiceID: "SQS", Err: &smithyhttp.ResponseError{Response: response, Err: &smithy.GenericAPIError{Code: code, Message: "message"}}}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	trust := tlsclient.Files{}.Explain(&net.OpError{Op: "remote error", Err: errors.New("certificate required")})
	refusedLogin := &loginError{answered(403, "AccessDenied")} // The token service's answer.
	for _, c := range []struct {
		err    error
		how    exchange.Sent
		class  sinks.Class
		reason sinks.Reason
		whole  bool
	}{
		{answered(400, "QueueDoesNotExist"), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(400, "AWS.SimpleQueueService.NonExistentQueue"), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(400, "com.amazonaws.sqs#QueueDoesNotExist"), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(404, "InvalidAddress"), exchange.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(403, "AccessDenied"), exchange.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(400, "AccessDeniedException"), exchange.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(400, "KMS.AccessDeniedException"), exchange.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(403, "InvalidClientTokenId"), exchange.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(403, "SignatureDoesNotMatch"), exchange.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(403, "ExpiredToken"), exchange.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(403, "RequestThrottled"), exchange.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "ThrottlingException"), exchange.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "KMS.ThrottlingException"), exchange.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(429, "UnknownError"), exchange.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "KMS.DisabledException"), exchange.Used, sinks.Unavailable, sinks.ReasonBroker, false},
		{answered(403, "OverLimit"), exchange.Used, sinks.Unavailable, sinks.ReasonFull, false},
		{answered(400, "InvalidMessageContents"), exchange.Used, sinks.Permanent, sinks.ReasonInvalid, false},
		{answered(400, "InvalidParameterValue"), exchange.Used, sinks.Permanent, sinks.ReasonInvalid, false},
		{answered(400, "AWS.SimpleQueueService.BatchRequestTooLong"), exchange.Used, sinks.Permanent, sinks.ReasonTooLarge, false},
		{answered(400, "SomethingNew"), exchange.Used, sinks.Retryable, sinks.ReasonRefused, false},
		{answered(408, "RequestTimeout"), exchange.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(500, "InternalError"), exchange.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(503, "ServiceUnavailable"), exchange.Fresh, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(301, "UnknownError"), exchange.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(502, ""), exchange.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(413, ""), exchange.Used, sinks.Retryable, sinks.ReasonRefused, false},
		{refusedLogin, exchange.Unsent, sinks.Unavailable, sinks.ReasonAuth, true},
		{&message.InvalidError{Field: "topic"}, exchange.Unsent, sinks.Permanent, sinks.ReasonInvalid, false},
		{&tooLargeError{sizeMost + 1}, exchange.Unsent, sinks.Permanent, sinks.ReasonTooLarge, false},
		{exchange.ErrNoSlot, exchange.Unsent, sinks.Unavailable, sinks.ReasonTimeout, false},
		{exchange.ErrTimeout, exchange.Unsent, sinks.Unavailable, sinks.ReasonTimeout, false},
		{exchange.ErrTimeout, exchange.Fresh, sinks.Unknown, sinks.ReasonTimeout, false},
		{context.Canceled, exchange.Used, sinks.Unknown, sinks.ReasonTimeout, false},
		{exchange.ErrClosed, exchange.Unsent, sinks.Unavailable, sinks.ReasonClosed, true},
		{exchange.ErrClosed, exchange.Used, sinks.Unknown, sinks.ReasonClosed, false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, exchange.Unsent, sinks.Unavailable, sinks.ReasonConnection, true},
		{io.EOF, exchange.Used, sinks.Unknown, sinks.ReasonConnection, false},
		{syscall.ECONNRESET, exchange.Fresh, sinks.Unknown, sinks.ReasonConnection, false},
		{&smithy.DeserializationError{Err: io.ErrUnexpectedEOF}, exchange.Used, sinks.Unknown, sinks.ReasonConnection, false},
		{trust, exchange.Unsent, sinks.Unavailable, sinks.ReasonAuth, true},
		{trust, exchange.Fresh, sinks.Unavailable, sinks.ReasonAuth, false},
		{trust, exchange.Used, sinks.Unknown, sinks.ReasonAuth, false},
	} {
		outcome := classify(c.err, c.how)
		assert.Equal(t, fmt.Sprint(c.class, c.reason, c.whole), fmt.Sprint(outcome.Class, outcome.Reason, outcome.Whole), "%v, %d", c.err, c.how)
		require.Error(t, outcome.Err)
		if outcome.IsAnswer() {
			require.NotContains(t, outcome.Err.Error(), ": message", "it may repeat what was sent")
		}
		asked := refuseAsked(c.err, c.how)
		assert.NotEqual(t, sinks.Unknown, asked.Class, "a question stores nothing: %v", c.err)
	}
	require.True(t, classify(answered(503, "ServiceUnavailable"), exchange.Used).OfRoute)
}

// What the answer says of each message counts; what it says nothing of is Unknown.
func TestOutcomesOf(t *testing.T) {
	t.Parallel()
	entries := make([]entry, 7)
	for n := range entries {
		m := message.Message{ID: "id", Topic: "orders"}
		entries[n] = newEntry(&m, n+10)
	}
	failed := func(id, code string, isOurs bool) types.BatchResultErrorEntry {
		return types.BatchResultErrorEntry{Id: &id, Code: &code, SenderFault: isOurs, Message: aws.String("secret")}
	}
	outcomes := outcomesOf(&sqs.SendMessageBatchOutput{
		Successful: []types.SendMessageBatchResultEntry{
			{Id: aws.String("10"), MessageId: aws.String("stored")},
			{Id: aws.String("11")},
			{Id: aws.String("9"), MessageId: aws.String("whose?")},
		},
		Failed: []types.BatchResultErrorEntry{
			failed("12", "InternalError", false), failed("13", "RequestThrottled", true), failed("14", "InvalidMessageContents", true), failed("15", "SomethingNew", true),
		},
	}, entries)
	var got []string
	for _, o := range outcomes {
		got = append(got, fmt.Sprint(o.Class, " ", o.Reason))
		if o.Err != nil {
			require.NotContains(t, o.Err.Error(), "secret")
		}
	}
	require.Equal(t, []string{
		"acknowledged ", "unknown broker", "unknown broker", "unavailable throttled", "permanent invalid", "retryable refused", "unknown broker",
	}, got)
}
