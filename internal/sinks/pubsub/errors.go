package pubsub

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// service is its name in errors.
const service = "Pub/Sub"

var errNoAnswer = errors.New("the answer does not tell of each message")

// answerError is an answer that is no success.
type answerError struct {
	status  int
	code    string // of google.rpc.Code; empty if not Pub/Sub has answered
	message string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, cmp.Or(e.code, http.StatusText(e.status)), e.message)
}

// messageShown bounds what is shown of an answer's text, in bytes.
const messageShown = 500

// answerOf reads the answer of a request that failed.
func answerOf(status int, text []byte) error {
	var answer struct {
		Error struct{ Status, Message string } `json:"error"`
	}
	_ = json.Unmarshal(text, &answer) // Else something else has answered.
	shown := answer.Error.Message
	return &answerError{status, answer.Error.Status, shown[:min(len(shown), messageShown)]}
}

var (
	missing   = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonTopicMissing}
	denied    = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonAuth}
	noLogin   = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonAuth, Whole: true}
	throttled = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonThrottled}
	unusable  = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonBroker}
	invalid   = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonInvalid}
	tooLarge  = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonTooLarge}
	refused   = sinks.Outcome{Class: sinks.Retryable, Reason: sinks.ReasonRefused}
	// unproven may have failed halfway, and takes no other now.
	unproven = sinks.Outcome{Class: sinks.Unknown, Reason: sinks.ReasonBroker, OfRoute: true}
)

// byCode are the answers of Pub/Sub to a request.
var byCode = map[string]sinks.Outcome{
	"NOT_FOUND":           missing,
	"PERMISSION_DENIED":   denied,
	"UNAUTHENTICATED":     noLogin,
	"RESOURCE_EXHAUSTED":  throttled,
	"FAILED_PRECONDITION": unusable, // a key of KMS, or a region that the topic does not allow
	"INVALID_ARGUMENT":    invalid,

	"ABORTED": unproven, "CANCELLED": unproven, "DEADLINE_EXCEEDED": unproven, "INTERNAL": unproven, "UNAVAILABLE": unproven, "UNKNOWN": unproven,
	"DATA_LOSS": unproven,
}

// refuse is what an error means for messages that no connection had any of.
func refuse(err error) sinks.Outcome { return classify(err, overhttp.Unsent) }

// classify says what an error means for messages that came so far. It is the only place that does.
func classify(err error, how overhttp.Sent) sinks.Outcome {
	outcome := sinks.Outcome{Class: sinks.Unknown, Reason: overhttp.ReasonOf(err)}
	answer, isAnswer := errors.AsType[*answerError](err)
	_, isLogin := errors.AsType[*overhttp.LoginError](err) // Its cause may be an answer of another service.
	switch {
	case how == overhttp.Unsent || isLogin:
		outcome = overhttp.OfUnsent(err)
	case isAnswer:
		if outcome = ofAnswer(answer); outcome.IsAnswer() {
			err = &overhttp.RefusedError{Service: service, Code: cmp.Or(answer.code, http.StatusText(answer.status))}
		}
	case errors.Is(err, errNoAnswer):
		outcome.Reason = sinks.ReasonBroker
	case how == overhttp.Fresh && tlsclient.IsTrust(err): // Under TLS 1.3 we learn after the handshake that it has failed: nothing was read.
		outcome.Class = sinks.Unavailable
	}
	outcome.Err = err
	return outcome
}

// ofAnswer is the outcome of a request that Pub/Sub, or what is in front of it, has answered.
func ofAnswer(answer *answerError) sinks.Outcome {
	outcome, isKnown := byCode[answer.code]
	isOfClient := answer.status/100 == 4 && answer.status != http.StatusRequestTimeout //nolint:mnd // as RFC 9110 has it
	switch {
	case isKnown:
		return outcome
	case answer.status == http.StatusRequestEntityTooLarge:
		return tooLarge
	case answer.status == http.StatusTooManyRequests:
		return throttled
	case isOfClient && answer.code == "": // It is no Pub/Sub, and took nothing.
		return unusable
	case isOfClient || answer.status == http.StatusNotImplemented && answer.code != "":
		return refused
	default:
		return unproven
	}
}

// isOfTopic reports whether Pub/Sub has answered, and accepted the login, although it refuses the topic.
func isOfTopic(err error) bool {
	answer, ok := errors.AsType[*answerError](err)
	return ok && (answer.code == "NOT_FOUND" || answer.code == "PERMISSION_DENIED")
}
