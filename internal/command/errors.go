package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/membership"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// The exit codes.
const (
	exitDone    = 0
	exitFailed  = 1 // Redis, a broker, or another failure
	exitUsage   = 2 // the command line or the configuration
	exitRefused = 3 // the message's state
)

// failure is an error with all that people and programs want to know of it.
type failure struct {
	// code is for programs, stable; exit is one of the exit codes.
	code string
	exit int
	// id is the message's, where it is about one.
	id string
	// text is for people; empty means the cause's.
	text  string
	cause error
	// hint says to people what to do.
	hint string
}

func (f *failure) Error() string {
	if f.text == "" {
		return operate.Plain(f.cause)
	}
	return f.text
}

func (f *failure) Unwrap() error { return f.cause }

// usageError says that the command line is wrong, and where to read on.
func usageError(err error) error {
	hint := ownName + " --help"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		hint = parse.Context.Model.Name + " --help"
		if node := parse.Context.Selected(); node != nil {
			hint = parse.Context.Model.Name + " " + node.Path() + " --help"
		}
	}
	return &failure{code: "usage", exit: exitUsage, cause: err, hint: "see `" + hint + "`"}
}

func usagef(format string, args ...any) error {
	return &failure{code: "usage", exit: exitUsage, text: fmt.Sprintf(format, args...)}
}

// exits are the exit codes of codes; of all others it is exitFailed.
var exits = map[string]int{
	operate.CodeInvalid: exitUsage, "duplicate": exitRefused, "not_found": exitRefused, "too_late": exitRefused,
	"many_paused": exitRefused, "many_jobs": exitRefused, "many_recurring": exitRefused, "many_queues": exitRefused,
	"declared_elsewhere": exitRefused, "not_empty": exitRefused, "precondition_failed": exitRefused, "precondition_required": exitUsage,
}

// exitOf is the exit code of a code.
func exitOf(code string) int {
	if exit, ok := exits[code]; ok {
		return exit
	}
	return exitFailed
}

// explain finds out what an error means.
func explain(err error) *failure {
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	code := operate.Classify(err).Code
	switch {
	case errors.Is(err, membership.ErrNameTaken):
		return &failure{code: "instance_in_use", exit: exitUsage, cause: err}
	case code == "unavailable" && errors.Is(err, context.Canceled) && !errors.Is(err, delay.ErrUnavailable):
		code = "interrupted"
	}
	return &failure{code: code, exit: exitOf(code), cause: err}
}

// of adds what was done, to which message, to an error of the SDK. An empty id
// means the whole queue.
func of(verb, queue, id string, err error) error {
	if err == nil {
		return nil
	}
	f := explain(err)
	if f.id != "" || f.text != "" {
		return f
	}
	f.id = id
	if id == "" {
		f.text = fmt.Sprintf("%s queue %s: %s", verb, queue, operate.Plain(err))
		return f
	}
	switch f.code {
	case "not_found":
		f.text = fmt.Sprintf("there is no message %q in queue %s: it was published or cancelled, or never scheduled", id, queue)
	case "too_late":
		f.text = fmt.Sprintf("too late to %s %q: it is being published right now", verb, id)
	case "duplicate":
		f.text = fmt.Sprintf("%s %q: %s", verb, id, operate.Plain(err))
		f.hint = "--conflict keep is content with it, --conflict replace puts this one in its place"
	default:
		f.text = fmt.Sprintf("%s %q: %s", verb, id, operate.Plain(err))
	}
	return f
}

// invalidIdentity checks what the command line calls a message.
func invalidIdentity(id, key string) error {
	if err := message.CheckIdentity(id, key); err != nil {
		return &failure{code: "invalid", exit: exitUsage, id: id, cause: err}
	}
	return nil
}

// report prints an error, if there is one, and returns the exit code.
func report(p *program, asJSON bool, err error) int {
	if err == nil {
		return exitDone
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	f := explain(err)
	_, _ = fmt.Fprintf(p.stderr, "bridge: %s\n", f.Error()) // There is nowhere else to report it.
	if f.hint != "" {
		_, _ = fmt.Fprintf(p.stderr, "(%s)\n", f.hint)
	}
	if asJSON {
		writeNotice(p.stderr, "error", f.code, f.Error(), f.id)
	}
	return f.exit
}

// warn says what did not keep the command from being done, but must be known.
func warn(p *program, asJSON bool, code, id, text string) {
	_, _ = fmt.Fprintf(p.stderr, "bridge: warning: %s\n", text)
	if asJSON {
		writeNotice(p.stderr, "warning", code, text, id)
	}
}

func writeNotice(w io.Writer, kind, code, text, id string) {
	notice := map[string]any{kind: struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		ID      string `json:"id"`
	}{code, text, id}}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(notice) // There is nowhere else to report it.
}
