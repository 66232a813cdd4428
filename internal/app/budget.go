package app

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/wait"
)

const (
	// budgetEvery is how often the room that is left is shared anew.
	budgetEvery = time.Second
	// growthOver is how far back the growth of a queue is looked at, growthEvery how often.
	growthOver  = 10 * time.Minute
	growthEvery = 10 * time.Second
)

// budget keeps a queue within its bytes, on the instance that keeps the queue. It owns no
// goroutine.
type budget struct {
	name   string
	config config.Budget
	admin  *store.Admin
	// isKeeper reports whether this instance does what one instance does.
	isKeeper func() bool
	metrics  *telemetry.Metrics
	logger   *slog.Logger
	trouble  telemetry.Trouble
	growth   growth
	isOver   bool
}

// run takes a turn a second, until ctx ends. Without a budget it takes back an earlier one.
func (b *budget) run(ctx context.Context) {
	for isDone := false; !isDone && wait.Sleep(ctx, budgetEvery); {
		if !b.isKeeper() {
			b.metrics.NoBudget(b.name)
			b.growth = growth{}
			continue
		}
		err := b.turn(ctx)
		isDone = err == nil && b.config.Bytes == 0
		switch {
		case ctx.Err() != nil:
		case err == nil:
			b.trouble.Over()
		case b.trouble.News(rediserr.Cause(err)):
			b.logger.Warn("what the queue takes cannot be measured, trying again", "event", "budget", "reason", rediserr.Cause(err), "err", err)
		}
	}
}

func (b *budget) turn(ctx context.Context) error {
	enforced := int64(b.config.Bytes)
	if b.config.Policy == config.BudgetWarn {
		enforced = 0
	}
	used, err := b.admin.Limit(ctx, enforced)
	if err != nil || b.config.Bytes == 0 {
		return err
	}
	b.growth.add(time.Now(), used)
	b.metrics.Budget(b.name, used, int64(b.config.Bytes), b.growth.fullIn(int64(b.config.Bytes)))
	const nearly = 0.99 // of the budget: what is refused is not measured
	isOver := float64(used) >= nearly*float64(b.config.Bytes)
	if isOver && !b.isOver {
		b.logger.Warn("the queue's budget is used up", "event", "budget", "policy", string(b.config.Policy),
			"used_bytes", used, "budget_bytes", int64(b.config.Bytes))
	}
	b.isOver = isOver
	return nil
}

// growth is how many bytes a queue took in the last minutes.
type growth struct {
	samples []usage // the oldest first
	last    usage
}

type usage struct {
	at   time.Time
	used int64
}

func (g *growth) add(at time.Time, used int64) {
	g.last = usage{at, used}
	if n := len(g.samples); n == 0 || at.Sub(g.samples[n-1].at) >= growthEvery {
		g.samples = append(g.samples, g.last)
	}
	for len(g.samples) > 1 && at.Sub(g.samples[1].at) >= growthOver {
		g.samples = g.samples[1:]
	}
}

// fullIn is after how many seconds the queue takes all that it may, if it grows on as it
// did; +Inf where it does not grow.
func (g *growth) fullIn(limit int64) float64 {
	first := g.samples[0]
	over, grown := g.last.at.Sub(first.at).Seconds(), float64(g.last.used-first.used)
	switch {
	case g.last.used >= limit:
		return 0
	case over <= 0 || grown <= 0:
		return math.Inf(1)
	}
	return float64(limit-g.last.used) / (grown / over)
}
