package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// Problem is an error as RFC 9457 has it. Its code is for programs.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code" example:"too_late" doc:"What it is, for programs; the answers of each call name those that it may have."`
	Detail string `json:"detail" doc:"What it is, for people."`
	Field  string `json:"field,omitempty" doc:"Which field is invalid."`
	// What is known of a message though there is an error.
	ID    string `json:"id,omitempty" doc:"The message's id."`
	DueAt string `json:"due_at,omitempty" format:"date-time" doc:"When the message is due, where it is known."`
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma's StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma's HeadersError: who may come again is told when.
func (p *Problem) GetHeaders() http.Header {
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		return http.Header{"Retry-After": {"1"}}
	}
	return nil
}

// ContentType implements huma's ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func newProblem(status int, code, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func invalid(field, detail string) *Problem {
	p := newProblem(http.StatusBadRequest, "invalid", detail)
	p.Field = field
	return p
}

// Invalid says what is wrong with a field of a message.
func Invalid(field, detail string) *Problem { return invalid(field, detail) }

func forbidden(detail string) *Problem { return newProblem(http.StatusForbidden, "forbidden", detail) }

func notFound(detail string) *Problem { return newProblem(http.StatusNotFound, "not_found", detail) }

// codeNotDurable is what was done all the same.
const codeNotDurable = "not_durable"

// kinds are the known errors, the first that fits wins: the one mapping of the SDK's
// errors. Nothing was done, but perhaps with unknown. not_durable is none to a caller of the
// API, see [Scheduled] and [Changed]; commands tell it.
var kinds = []struct {
	is     error
	code   string
	status int
}{
	{delay.ErrInvalid, "invalid", http.StatusBadRequest},
	{inspect.ErrListRequest, "invalid", http.StatusBadRequest},
	{inspect.ErrForecast, "invalid", http.StatusBadRequest},
	{job.ErrSpec, "invalid", http.StatusBadRequest},
	{job.ErrManyOpen, "many_jobs", http.StatusConflict},
	{job.ErrNone, "not_found", http.StatusNotFound},
	{inspect.ErrManyPaused, "many_paused", http.StatusConflict},
	{delay.ErrDuplicate, "duplicate", http.StatusConflict},
	{store.ErrOtherTopic, "forbidden", http.StatusForbidden},
	{delay.ErrTooLate, "too_late", http.StatusConflict},
	{delay.ErrNotFound, "not_found", http.StatusNotFound},
	{delay.ErrUnknown, "unknown", http.StatusGatewayTimeout},
	{delay.ErrNotDurable, codeNotDurable, http.StatusGatewayTimeout},
	{delay.ErrFull, "full", http.StatusInsufficientStorage},
	{delay.ErrNoLayout, "no_layout", http.StatusServiceUnavailable},
	{delay.ErrUnavailable, "unavailable", http.StatusServiceUnavailable},
	{context.DeadlineExceeded, "unavailable", http.StatusServiceUnavailable},
	{context.Canceled, "unavailable", http.StatusServiceUnavailable},
}

// problem is what the API says of an error of the SDK or of the store.
func problem(err error) *Problem {
	if known, ok := errors.AsType[*Problem](err); ok {
		return known
	}
	if refusal, ok := errors.AsType[*access.Refusal](err); ok {
		return newProblem(refusal.Status, refusal.Code, refusal.Detail)
	}
	detail := strings.ReplaceAll(err.Error(), "delay: ", "")
	if wrong, ok := errors.AsType[*message.InvalidError](err); ok {
		return invalid(wrong.Field, detail)
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.is) {
			return newProblem(kind.status, kind.code, detail)
		}
	}
	return newProblem(http.StatusInternalServerError, "failed", detail)
}

func init() {
	// Else {"id": "a", "ID": "b"} would be the message b: names are taken letter by letter.
	huma.ValidateStrictCasing = true
	// huma makes its own errors, and the errors in its description, by this.
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		return requestProblem(status, detail, errs)
	}
}

// requestProblem is what huma found wrong in a request. Values are not repeated: they
// may be payload.
func requestProblem(status int, detail string, errs []error) *Problem {
	if status >= http.StatusInternalServerError {
		return newProblem(status, "failed", detail)
	}
	p := newProblem(status, "invalid", detail)
	if status == http.StatusUnprocessableEntity {
		p = newProblem(http.StatusBadRequest, "invalid", detail)
	}
	for _, err := range errs {
		var found *huma.ErrorDetail
		if !errors.As(err, &found) {
			p.Detail = err.Error()
			continue
		}
		if body, isText := found.Value.(string); isText && found.Location == "body" && status == http.StatusBadRequest {
			if known := new(Problem); errors.As(unmarshal([]byte(body), new(any)), &known) { // huma has kept its text only.
				return known
			}
		}
		p.Field, p.Detail = fieldOf(found), found.Message
		if p.Field != "" {
			p.Detail = p.Field + ": " + found.Message
			break
		}
	}
	return p
}

// fieldOf is the field as the caller has named it: "topic", "messages[2].in".
func fieldOf(d *huma.ErrorDetail) string {
	_, field, _ := strings.Cut(d.Location, ".") // Before it is where: body, query, path.
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	if rest, ok := strings.CutPrefix(d.Message, before); ok {
		if missing, ok := strings.CutSuffix(rest, after); ok {
			return strings.TrimPrefix(field+"."+missing, ".")
		}
	}
	return field
}

// writeProblem answers a request that is not served at all.
func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="delaybridge"`)
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // An error means that the caller has gone.
}
