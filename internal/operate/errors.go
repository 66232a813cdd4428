package operate

import (
	"context"
	"errors"
	"regexp"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// Fault is an error with its code, which is for programs and stable.
type Fault struct {
	Code   string `json:"code" example:"too_late" doc:"The kind of problem, for programs; each call lists the codes that it may answer."`
	Detail string `json:"detail" doc:"A description, for people."`
	Field  string `json:"field,omitempty" doc:"Which field is invalid."`
}

// Error implements error.
func (e *Fault) Error() string { return e.Detail }

// CodeInvalid is the code of what was asked for in a way that cannot be meant.
const CodeInvalid = "invalid"

// Invalid says what is wrong with a field.
func Invalid(field, detail string) *Fault { return &Fault{CodeInvalid, detail, field} }

// codes are those of the known errors; the first that fits wins. If there is one, nothing
// was done, but perhaps with unknown and not_durable.
var codes = []struct {
	is   error
	code string
}{
	{delay.ErrInvalid, CodeInvalid},
	{inspect.ErrListRequest, CodeInvalid},
	{inspect.ErrForecast, CodeInvalid},
	{job.ErrSpec, CodeInvalid},
	{job.ErrManyOpen, "many_jobs"},
	{job.ErrNone, "not_found"},
	{inspect.ErrManyPaused, "many_paused"},
	{delay.ErrManyRecurring, "many_recurring"},
	{delay.ErrDuplicate, "duplicate"},
	{store.ErrOtherTopic, "forbidden"},
	{delay.ErrTooLate, "too_late"},
	{delay.ErrNotFound, "not_found"},
	{delay.ErrUnknown, "unknown"},
	{delay.ErrNotDurable, "not_durable"},
	{delay.ErrFull, "full"},
	{delay.ErrNoLayout, "no_layout"},
	{delay.ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "unavailable"},
	{context.Canceled, "unavailable"},
}

// Classify is what an error of the SDK or of the store means; what is not known has failed.
func Classify(err error) *Fault {
	if known, ok := errors.AsType[*Fault](err); ok {
		return known
	}
	detail := Plain(err)
	if wrong, ok := errors.AsType[*message.InvalidError](err); ok {
		return Invalid(wrong.Field, detail)
	}
	for _, known := range codes {
		if errors.Is(err, known.is) {
			return &Fault{Code: known.code, Detail: detail}
		}
	}
	return &Fault{Code: "failed", Detail: detail}
}

// packageName is that of the SDK in its errors; a flag of that name is something else.
var packageName = regexp.MustCompile(`(^|[^-\w])delay: `)

// Plain is an error's text without the name of the package in the SDK's errors.
func Plain(err error) string { return packageName.ReplaceAllString(err.Error(), "$1") }
