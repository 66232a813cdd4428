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

// called is what a call of a Go package has answered: a panic is a crash.
func called(call func() error) (a answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = answer{broken: true, text: fmt.Sprint("panic: ", cause)}
		}
	}()
	err := call()
	if err == nil {
		return answer{text: "no error"}
	}
	return answer{
		refused: errors.Is(err, delay.ErrInvalid), text: err.Error(),
		broken: errors.Is(err, delay.ErrUnavailable) || errors.Is(err, delay.ErrUnknown),
	}
}

// goTrial is a call of a Go package.
func goTrial(what string, names []string, call func(context.Context) error) trial {
	return trial{what, names, func(ctx context.Context) answer { return called(func() error { return call(ctx) }) }}
}
