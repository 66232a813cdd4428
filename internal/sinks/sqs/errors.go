package sqs

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// service is its name in errors.
const service = "SQS"

var errNoAnswer = errors.New("the answer does not tell of the message")

var (
	missing   = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonTopicMissing}
	denied    = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonAuth}
	login     = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonAuth, Whole: true}
	throttled = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonThrottled}
	unusable  = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonBroker}
	full      = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonFull}
	invalid   = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonInvalid}
	tooLarge  = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonTooLarge}
	refused   = sinks.Outcome{Class: sinks.Retryable, Reason: sinks.ReasonRefused}
	unproven  = sinks.Outcome{Class: sinks.Unknown, Reason: sinks.ReasonBroker}
)

// byCode are the refusals of a request, or of a message in one. SQS names some in two ways: by
// the name of JSON, and by that of its older protocol in a header, which the client prefers.
var byCode = map[string]sinks.Outcome{
	"QueueDoesNotExist": missing, "NonExistentQueue": missing, "QueueDeletedRecently": missing, "InvalidAddress": missing,
	"AccessDenied": denied, "AccessDeniedException": denied, "InvalidSecurity": denied, "KmsAccessDenied": denied, "KMS.AccessDeniedException": denied,

	"InvalidClientTokenId": login, "UnrecognizedClientException": login, "InvalidAccessKeyId": login, "NotAuthorized": login, "OptInRequired": login,
	"SignatureDoesNotMatch": login, "InvalidSignatureException": login, "IncompleteSignature": login, "IncompleteSignatureException": login,
	"MissingAuthenticationToken": login, "MissingAuthenticationTokenException": login,
	"ExpiredToken": login, "ExpiredTokenException": login, "RequestExpired": login,

	"RequestThrottled": throttled, "Throttling": throttled, "ThrottlingException": throttled, "ThrottledException": throttled,
	"TooManyRequestsException": throttled, "KmsThrottled": throttled, "KMS.ThrottlingException": throttled,

	"KmsDisabled": unusable, "KMS.DisabledException": unusable, "KmsInvalidKeyUsage": unusable, "KMS.InvalidKeyUsageException": unusable,
	"KmsInvalidState": unusable, "KMS.InvalidStateException": unusable, "KmsNotFound": unusable, "KMS.NotFoundException": unusable,
	"KmsOptInRequired": unusable, "KMS.OptInRequired": unusable,

	"OverLimit":           full,
	"BatchRequestTooLong": tooLarge,

	"InvalidMessageContents": invalid, "InvalidParameterValue": invalid, "InvalidAttributeValue": invalid, "MissingParameter": invalid,
	"UnsupportedOperation": invalid,
}

// plainCode is a code without what some answers put in front of it.
func plainCode(code string) string {
	if _, after, found := strings.Cut(code, "#"); found {
		code = after
	}
	return strings.TrimPrefix(code, "AWS.SimpleQueueService.")
}

// refuse is what an error means for messages that no connection had any of.
func refuse(err error) sinks.Outcome { return classify(err, overhttp.Unsent) }

// refuseAsked is what a failed look-up of the queue means for messages that were not handed over.
func refuseAsked(err error, how overhttp.Sent) sinks.Outcome {
	outcome := classify(err, how)
	if outcome.Class == sinks.Unknown || outcome.Class == sinks.Retryable {
		outcome.Class, outcome.OfRoute = sinks.Unavailable, false
	}
	return outcome
}

// classify says what an error means for messages that came so far. It is, with ofEntry, the
// only place that does.
func classify(err error, how overhttp.Sent) sinks.Outcome {
	outcome := sinks.Outcome{Class: sinks.Unknown, Reason: overhttp.ReasonOf(err)}
	status := statusOf(err)
	switch {
	case how == overhttp.Unsent:
		outcome = overhttp.OfUnsent(err)
	case status != 0 && status != http.StatusOK:
		code := codeOf(err)
		if outcome = ofAnswer(code, status); outcome.IsAnswer() {
			err = &overhttp.RefusedError{Service: service, Code: cmp.Or(code, http.StatusText(status))}
		}
	case how == overhttp.Fresh && tlsclient.IsTrust(err): // Under TLS 1.3 we learn after the handshake that it has failed: nothing was read.
		outcome.Class = sinks.Unavailable
	}
	outcome.Err = err
	return outcome
}

// ofAnswer is the outcome of a request that SQS, or what is in front of it, has answered.
func ofAnswer(code string, status int) sinks.Outcome {
	outcome, isKnown := byCode[code]
	switch {
	case isKnown:
		return outcome
	case status == http.StatusTooManyRequests:
		return throttled
	case status/100 == 4 && status != http.StatusRequestTimeout: //nolint:mnd // the client's error, as RFC 9110 has it
		return refused
	default: // It may have failed halfway, and takes no other now.
		outcome = unproven
		outcome.OfRoute = true
		return outcome
	}
}

// ofEntry is the outcome of a message that was refused while others of its request were not.
func ofEntry(entry types.BatchResultErrorEntry) sinks.Outcome {
	code := plainCode(text(entry.Code))
	outcome, isKnown := byCode[code]
	switch {
	case isKnown:
	case entry.SenderFault:
		outcome = refused
	default: // The fault of SQS, which says nothing of how far it came.
		outcome = unproven
	}
	outcome.Err = &overhttp.RefusedError{Service: service, Code: code}
	return outcome
}

// codeOf is the code of the answer; empty if there was none, or not SQS has answered.
func codeOf(err error) string {
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return plainCode(answer.ErrorCode())
	}
	return ""
}

// statusOf is the status of the answer; 0 if there was none.
func statusOf(err error) int {
	if answered, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return answered.HTTPStatusCode()
	}
	return 0
}

// isOfQueue reports whether SQS has answered, and accepted the login, although it refuses the queue.
func isOfQueue(err error, how overhttp.Sent) bool {
	outcome := refuseAsked(err, how)
	return how != overhttp.Unsent && !outcome.Whole && (outcome.Reason == sinks.ReasonTopicMissing || outcome.Reason == sinks.ReasonAuth)
}
