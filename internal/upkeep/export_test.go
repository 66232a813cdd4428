package upkeep

import (
	"context"
	"log/slog"
	"time"
)

// Rounds takes turns until ctx ends.
func Rounds(ctx context.Context, every time.Duration, logger *slog.Logger, turn func(ctx context.Context) error) {
	r := rounds{every: every, event: "test", fails: "it fails", logger: logger}
	r.run(ctx, turn)
}

// GrowthAhead is how many times as far ahead as it looked a growth tells when something is full.
const GrowthAhead = growthAhead
