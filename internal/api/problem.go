package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// Problem is an error as RFC 9457 has it. Its code is for programs.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	operate.Fault

	// What is known of a message though there is an error.
	ID    string `json:"id,omitempty" doc:"The message's id."`
	DueAt string `json:"due_at,omitempty" format:"date-time" doc:"When the message is due, if it is known."`
}

// Unwrap is what it is without HTTP.
func (p *Problem) Unwrap() error { return &p.Fault }

// GetStatus implements huma's StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma's HeadersError: it says when a caller may try again.
func (p *Problem) GetHeaders() http.Header {
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		return http.Header{"Retry-After": {"1"}}
	}
	return nil
}

// ContentType implements huma's ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func newProblem(status int, code, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Fault: operate.Fault{Code: code, Detail: detail}}
}

func invalid(field, detail string) *Problem {
	p := newProblem(http.StatusBadRequest, "invalid", detail)
	p.Field = field
	return p
}

func forbidden(detail string) *Problem { return newProblem(http.StatusForbidden, "forbidden", detail) }

func notFound(detail string) *Problem { return newProblem(http.StatusNotFound, "not_found", detail) }

// statuses are those of the codes of [operate.Classify]; of others it is 500.
var statuses = map[string]int{
	operate.CodeInvalid: http.StatusBadRequest,
	"forbidden":         http.StatusForbidden,
	"not_found":         http.StatusNotFound,
	"duplicate":         http.StatusConflict,
	"too_late":          http.StatusConflict,
	"many_jobs":         http.StatusConflict,
	"many_paused":       http.StatusConflict,
	"many_recurring":    http.StatusConflict,
	"many_queues":       http.StatusConflict,

	"declared_elsewhere":    http.StatusConflict,
	"not_empty":             http.StatusConflict,
	"precondition_failed":   http.StatusPreconditionFailed,
	"precondition_required": http.StatusPreconditionRequired,

	"unknown":     http.StatusGatewayTimeout,
	"not_durable": http.StatusGatewayTimeout,
	"full":        http.StatusInsufficientStorage,
	"no_layout":   http.StatusServiceUnavailable,
	"unavailable": http.StatusServiceUnavailable,
}

// problem is the answer for an error of ours, of the SDK or of the store.
func problem(err error) *Problem {
	if known, ok := errors.AsType[*Problem](err); ok {
		return known
	}
	if refusal, ok := errors.AsType[*access.Refusal](err); ok {
		return newProblem(refusal.Status, refusal.Code, refusal.Detail)
	}
	known := operate.Classify(err)
	p := newProblem(cmp.Or(statuses[known.Code], http.StatusInternalServerError), known.Code, known.Detail)
	p.Field = known.Field
	return p
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
