package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Loss is what an incident may lose, besides time.
type Loss int

const (
	// LosesNothing is where who dies or hangs has told others all that counts.
	LosesNothing Loss = iota
	// LosesRedis is where Redis, or a part of it, comes back empty.
	LosesRedis
	// RevertsRedis is where Redis comes back as it was at the incident's beginning.
	RevertsRedis
	// RevertsDatabase is where the database comes back as it was at the incident's beginning.
	RevertsDatabase
)

// Incident is something that went wrong, from its first effect to its end.
type Incident struct {
	Name     string
	Loss     Loss
	From, To time.Time
}

// incidents are those of a trial. They are safe for concurrent use.
type incidents struct {
	mu   sync.Mutex
	list []Incident
}

// Happen records an incident that somebody else causes, from its beginning to its end.
func (i *incidents) Happen(name string, loss Loss, do func() error) error {
	return i.happen(name, loss, do)
}

// happen records an incident from its beginning to its end.
func (i *incidents) happen(name string, loss Loss, do func() error) error {
	from := time.Now()
	err := do()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = append(i.list, Incident{name, loss, from, time.Now()})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// KillBridges kills a bridge at random, again and again, and starts it as a
// supervisor does, until ctx ends; then all run. Pause is the longest time
// between two kills.
func (r *OutboxRun) KillBridges(ctx context.Context, pause time.Duration) error {
	return r.disturb(ctx, pause, func(b *Bridge, _ *rand.Rand) error { return r.killBridge(ctx, b) })
}

// StopBridges is [OutboxRun.KillBridges], but every second one hangs instead, for
// as long as given: longer than its lease.
func (r *OutboxRun) StopBridges(ctx context.Context, pause, hang time.Duration) error {
	return r.disturb(ctx, pause, func(b *Bridge, random *rand.Rand) error {
		if random.IntN(2) == 0 {
			return r.killBridge(ctx, b)
		}
		return r.happen("bridge paused", LosesNothing, func() error {
			if err := b.Pause(); err != nil {
				return err
			}
			_ = Sleep(ctx, hang) // Less long at the end.
			return b.Resume()
		})
	})
}

// disturb repeatedly does something to a random bridge, until ctx ends.
func (r *OutboxRun) disturb(ctx context.Context, pause time.Duration, do func(*Bridge, *rand.Rand) error) error {
	random := rand.New(rand.NewPCG(r.seed, 9))                                              //nolint:gosec // a seed makes the run repeatable
	wait := func() { _ = Sleep(ctx, pause/2+time.Duration(random.Int64N(int64(pause/2)))) } // Less long at the end.
	for wait(); ctx.Err() == nil; wait() {
		bridges := r.World.Bridges()
		if err := do(bridges[random.IntN(len(bridges))], random); err != nil {
			return err
		}
	}
	return nil
}

func (r *OutboxRun) killBridge(ctx context.Context, b *Bridge) error {
	return r.happen("bridge killed", LosesNothing, func() error {
		if err := b.Kill(); err != nil {
			return err
		}
		return r.Supervise(context.WithoutCancel(ctx), b)
	})
}

// Supervise starts a bridge, and starts it again if it ends before it is ready.
func (r *OutboxRun) Supervise(ctx context.Context, b *Bridge) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := b.Start(ctx)
		if err == nil {
			return nil
		}
		if failure := Sleep(ctx, 500*time.Millisecond); failure != nil {
			return fmt.Errorf("start a bridge again: %w", errors.Join(err, failure))
		}
	}
}

// HangRedis stops Redis for a while; connections stay.
func (r *OutboxRun) HangRedis(ctx context.Context, d time.Duration) error {
	return r.happen("redis hangs", LosesNothing, func() error {
		if err := r.World.Redis.Pause(); err != nil {
			return err
		}
		return errors.Join(Sleep(ctx, d), r.World.Redis.Resume())
	})
}

// KillRedis kills Redis and starts it again after a while.
func (r *OutboxRun) KillRedis(ctx context.Context, d time.Duration) error {
	return r.happen("redis killed", LosesNothing, func() error {
		if err := r.World.Redis.Kill(); err != nil {
			return err
		}
		return errors.Join(Sleep(ctx, d), r.World.Redis.Start(context.WithoutCancel(ctx)))
	})
}

// KillDatabase kills the database and starts it again after a while.
func (r *OutboxRun) KillDatabase(ctx context.Context, d time.Duration) error {
	return r.happen("database killed", LosesNothing, func() error {
		if err := r.World.Database.Server.Kill(); err != nil {
			return err
		}
		return errors.Join(Sleep(ctx, d), r.World.Database.Server.Start(context.WithoutCancel(ctx)))
	})
}

// RevertDatabase takes back what the database committed during the given time,
// see [Database.Revert].
func (r *OutboxRun) RevertDatabase(ctx context.Context, d time.Duration) error {
	return r.happen("database reverted", RevertsDatabase, func() error { return r.World.Database.Revert(ctx, d) })
}
