package store

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// Producer is a queue as those see it who schedule messages and change them: the
// SDK, and people by the commands. Who asks for one uses package inspect. Its verbs keep to "one call, one effect", see
// state.
type Producer struct{ *core }

// Producer is the producers' door.
func (q *Queue) Producer() *Producer { return &Producer{q.core} }

// CreateLayout makes the queue's layout where there is none, and leaves one that is
// there alone. It tries until Redis answers or ctx ends; then its error is
// [ErrUnavailable].
func (q *Producer) CreateLayout(ctx context.Context, want Layout) error {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	var cause error
	for {
		_, err := q.layouts.Create(ctx, want)
		if err == nil {
			return nil
		}
		cause = rediserr.Telling(cause, err)
		if rediserr.Classify(err) == rediserr.Fatal || !wait.Sleep(ctx, pause.Next()) {
			return fmt.Errorf("%w: %w", ErrUnavailable, cause)
		}
	}
}
