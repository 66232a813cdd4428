// Package upkeep has what a queue needs besides its pollers: its budget, the limits of its
// dead letters, its canaries, and watches of Redis' memory and durability.
//
// No type owns a goroutine: its Run works until its context ends. Work that one instance
// does for the queue first checks whether this one is the keeper.
package upkeep

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// Queue is a queue for its upkeep.
type Queue struct {
	Store *store.Queue
	// Config is the configuration in force.
	Config func() *config.Queue
	// IsKeeper reports whether this instance does the work of the queue's keeper.
	IsKeeper func() bool
	Metrics  *telemetry.Metrics
	Logger   *slog.Logger
}

func (q *Queue) admin() *inspect.Admin { return inspect.NewAdmin(q.Store) }

// rounds are repeated turns of work. If they fail, the log says so once, and again when the
// cause changes.
type rounds struct {
	every  time.Duration
	event  string // as the log names it
	fails  string // what the log says if a turn fails
	logger *slog.Logger

	trouble telemetry.Trouble
}

// run takes turns until ctx ends. The first comes at a random time within the interval, so
// that the turns of many queues do not coincide.
func (r *rounds) run(ctx context.Context, turn func(ctx context.Context) error) {
	for pause := rand.N(r.every); wait.Sleep(ctx, pause); pause = r.every { //nolint:gosec // spreads the turns of queues
		r.tell(ctx, turn(ctx))
	}
}

func (r *rounds) tell(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.trouble.Over()
	case r.trouble.News(rediserr.Cause(err)):
		r.logger.Warn(r.fails+", trying again", "event", r.event, "reason", rediserr.Cause(err), "err", err)
	}
}
