package inputs

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/delay"
)

// trial is one bad input at an entrance.
type trial struct {
	what string
	// names are what the error may call the field, one of them.
	names []string
	put   func(context.Context) answer
}

// answer is what an entrance says of an input.
type answer struct {
	refused bool
	broken  bool // a crash, a 5xx, or no answer
	text    string
}

// called is what a call of a Go package has answered. A panic, and an error that is no
// refusal, is broken.
func called(isRefusal func(error) bool, call func() error) (a answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = answer{broken: true, text: fmt.Sprint("panic: ", cause)}
		}
	}()
	err := call()
	if err == nil {
		return answer{text: "no error"}
	}
	refused := isRefusal(err)
	return answer{refused: refused, broken: !refused, text: err.Error()}
}

// sdkTrial is a call of the SDK.
func sdkTrial(what string, names []string, call func(context.Context) error) trial {
	isRefusal := func(err error) bool { return errors.Is(err, delay.ErrInvalid) }
	return trial{what, names, func(ctx context.Context) answer { return called(isRefusal, func() error { return call(ctx) }) }}
}
