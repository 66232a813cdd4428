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
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
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
	refusedLogin := &overhttp.LoginError{Cause: answered(403, "AccessDenied")} // The token service's answer.
	for _, c := range []struct {
		err    error
		how    overhttp.Sent
		class  sinks.Class
		reason sinks.Reason
		whole  bool
	}{
		{answered(400, "QueueDoesNotExist"), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(400, "AWS.SimpleQueueService.NonExistentQueue"), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(400, "com.amazonaws.sqs#QueueDoesNotExist"), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(404, "InvalidAddress"), overhttp.Used, sinks.Unavailable, sinks.ReasonTopicMissing, false},
		{answered(403, "AccessDenied"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(400, "AccessDeniedException"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(400, "KMS.AccessDeniedException"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, false},
		{answered(403, "InvalidClientTokenId"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(403, "SignatureDoesNotMatch"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(403, "ExpiredToken"), overhttp.Used, sinks.Unavailable, sinks.ReasonAuth, true},
		{answered(403, "RequestThrottled"), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "ThrottlingException"), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "KMS.ThrottlingException"), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(429, "UnknownError"), overhttp.Used, sinks.Unavailable, sinks.ReasonThrottled, false},
		{answered(400, "KMS.DisabledException"), overhttp.Used, sinks.Unavailable, sinks.ReasonBroker, false},
		{answered(403, "OverLimit"), overhttp.Used, sinks.Unavailable, sinks.ReasonFull, false},
		{answered(400, "InvalidMessageContents"), overhttp.Used, sinks.Permanent, sinks.ReasonInvalid, false},
		{answered(400, "InvalidParameterValue"), overhttp.Used, sinks.Permanent, sinks.ReasonInvalid, false},
		{answered(400, "AWS.SimpleQueueService.BatchRequestTooLong"), overhttp.Used, sinks.Permanent, sinks.ReasonTooLarge, false},
		{answered(400, "SomethingNew"), overhttp.Used, sinks.Retryable, sinks.ReasonRefused, false},
		{answered(408, "RequestTimeout"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(500, "InternalError"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(503, "ServiceUnavailable"), overhttp.Fresh, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(301, "UnknownError"), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(502, ""), overhttp.Used, sinks.Unknown, sinks.ReasonBroker, false},
		{answered(413, ""), overhttp.Used, sinks.Retryable, sinks.ReasonRefused, false},
		{refusedLogin, overhttp.Unsent, sinks.Unavailable, sinks.ReasonAuth, true},
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
		{syscall.ECONNRESET, overhttp.Fresh, sinks.Unknown, sinks.ReasonConnection, false},
		{&smithy.DeserializationError{Err: io.ErrUnexpectedEOF}, overhttp.Used, sinks.Unknown, sinks.ReasonConnection, false},
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
		asked := refuseAsked(c.err, c.how)
		assert.NotEqual(t, sinks.Unknown, asked.Class, "a question stores nothing: %v", c.err)
	}
	require.True(t, classify(answered(503, "ServiceUnavailable"), overhttp.Used).OfRoute)
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
