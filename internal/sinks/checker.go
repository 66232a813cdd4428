package sinks

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/check"
)

// Checker is a sink that can look at how its broker would treat messages before
// there are any. A sink need not be one.
type Checker interface {
	// Check asks the broker, over connections of its own. It publishes nothing,
	// makes nothing and changes nothing there, and ends soon after ctx.
	Check(ctx context.Context, plan Plan) []check.Finding
}

// Plan is what will be published.
type Plan struct {
	// Topics are those that are known.
	Topics []string
	// MaxMessage is the most that a message may have, in bytes.
	MaxMessage int
	// Again is how long after a message was published it may be published again,
	// because whoever did it has died.
	Again time.Duration
}

// FirstThatAnswers dials each server, and returns the first connection; ok is false if
// there is none. What it found of the others is of less weight where one has answered:
// one is enough to begin with.
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
