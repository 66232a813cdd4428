package delay

import (
	"log/slog"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// NewRepeatedLog is what [WithLogger] has told of calls that were repeated.
func NewRepeatedLog(l *slog.Logger) func(store.Repetition) { return (&repeatedLog{logger: l}).add }

// Repeated is the error that the options name.
func Repeated(opts []CallOption) error { return repeated(opts) }
