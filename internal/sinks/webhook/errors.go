package webhook

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

var errNoEndpoint = errors.New("there is no endpoint of that name")

// answerError is a status that acknowledges nothing. It shows nothing else of the answer, which
// may repeat what was posted.
type answerError struct {
	endpoint string
	status   int
}

func (e *answerError) Error() string {
	return fmt.Sprintf("endpoint %s answered %d %s", e.endpoint, e.status, http.StatusText(e.status))
}

// byStatus are the answers by which the endpoint says that it has not dealt with the message.
// Another 4xx is about this very message. So is 500, by which a server says that its work on
// it has failed, halfway maybe: one that is down as a whole says 502 to 504, or nothing. Any
// other status proves nothing.
var byStatus = map[int]sinks.Outcome{
	http.StatusUnauthorized:                  {Class: sinks.Unavailable, Reason: sinks.ReasonAuth},
	http.StatusForbidden:                     {Class: sinks.Unavailable, Reason: sinks.ReasonAuth},
	http.StatusProxyAuthRequired:             {Class: sinks.Unavailable, Reason: sinks.ReasonAuth},
	http.StatusNetworkAuthenticationRequired: {Class: sinks.Unavailable, Reason: sinks.ReasonAuth},
	http.StatusNotFound:                      {Class: sinks.Unavailable, Reason: sinks.ReasonTopicMissing},
	http.StatusMethodNotAllowed:              {Class: sinks.Unavailable, Reason: sinks.ReasonTopicMissing},
	http.StatusGone:                          {Class: sinks.Unavailable, Reason: sinks.ReasonTopicMissing},
	http.StatusMisdirectedRequest:            {Class: sinks.Unavailable, Reason: sinks.ReasonUnroutable},
	http.StatusRequestTimeout:                {Class: sinks.Unavailable, Reason: sinks.ReasonTimeout},
	http.StatusTooEarly:                      {Class: sinks.Unavailable, Reason: sinks.ReasonBroker},
	http.StatusTooManyRequests:               {Class: sinks.Unavailable, Reason: sinks.ReasonThrottled},
	http.StatusServiceUnavailable:            {Class: sinks.Unavailable, Reason: sinks.ReasonBroker},
	http.StatusInsufficientStorage:           {Class: sinks.Unavailable, Reason: sinks.ReasonFull},
	http.StatusRequestEntityTooLarge:         {Class: sinks.Permanent, Reason: sinks.ReasonTooLarge},
	http.StatusRequestHeaderFieldsTooLarge:   {Class: sinks.Permanent, Reason: sinks.ReasonTooLarge},
	http.StatusInternalServerError:           {Class: sinks.Retryable, Reason: sinks.ReasonRefused, MaybeOut: true},
	// A gateway whose server does not answer: it may have got the message, and takes no other.
	http.StatusBadGateway:     {Class: sinks.Unknown, Reason: sinks.ReasonBroker, OfRoute: true},
	http.StatusGatewayTimeout: {Class: sinks.Unknown, Reason: sinks.ReasonBroker, OfRoute: true},
}

// refuse is what an error means for a message that no connection had any of.
func refuse(err error) sinks.Outcome { return classify(err, overhttp.Unsent) }

// classify says what an error means for a message that came so far. It is the only place
// that does.
func classify(err error, how overhttp.Sent) sinks.Outcome {
	outcome := sinks.Outcome{Class: sinks.Unavailable, Reason: why(err)}
	if how != overhttp.Unsent {
		outcome.Class = sinks.Unknown
	}
	var answered *answerError
	var invalid *message.InvalidError
	switch {
	case errors.As(err, &answered):
		outcome = ofStatus(answered.status)
	case errors.As(err, &invalid):
		outcome = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonInvalid}
	case errors.Is(err, overhttp.ErrClosed):
		outcome.Whole = true
	case how == overhttp.Fresh && tlsclient.IsTrust(err): // Under TLS 1.3 we learn after the handshake that it has failed: nothing was read.
		outcome.Class = sinks.Unavailable
	}
	outcome.Err = err
	return outcome
}

func ofStatus(status int) sinks.Outcome {
	outcome, isKnown := byStatus[status]
	switch class := status / 100; {
	case isKnown:
		return outcome
	case class == 3: //nolint:mnd // a redirect, as RFC 9110 has it
		return sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonUnroutable}
	case class == 4: //nolint:mnd // the client's error
		return sinks.Outcome{Class: sinks.Retryable, Reason: sinks.ReasonRefused}
	default:
		return sinks.Outcome{Class: sinks.Unknown, Reason: sinks.ReasonBroker}
	}
}

// why names the reason of an error that is no answer.
func why(err error) sinks.Reason {
	if errors.Is(err, errNoEndpoint) {
		return sinks.ReasonTopicMissing
	}
	return overhttp.ReasonOf(err)
}
