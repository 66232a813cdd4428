package sinks

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/check"
)

// Checker is a sink that can check how its broker would treat messages before
// there are any. It is optional.
type Checker interface {
	// Check asks the broker over connections of its own. It publishes nothing,
	// changes nothing at the broker, and ends soon after ctx.
	Check(ctx context.Context, plan Plan) []check.Finding
}

// Plan is what will be published.
type Plan struct {
	// Topics are the known topics.
	Topics []string
	// MaxMessage is the size limit of a message, in bytes.
	MaxMessage int
	// Again is how long after its publishing a message may be published again,
	// because its publisher has died.
	Again time.Duration
}

// FirstThatAnswers dials each server, and returns the first connection; ok is false if
// there is none. If one has answered, findings about the others weigh less, since one
// is enough to begin with.
func FirstThatAnswers[S, C any](
	servers []S, dial func(S) (C, error), end func(C), unanswered func(S, error) check.Finding,
) (first C, ok bool, findings []check.Finding) {
	for _, server := range servers {
		conn, err := dial(server)
		switch {
		case err != nil:
			findings = append(findings, unanswered(server, err))
		case !ok:
			first, ok = conn, true
		default:
			end(conn)
		}
	}
	if ok {
		for i := range findings {
			findings[i].Level = check.Warning
		}
	}
	return first, ok, findings
}
