// Package declarations has the queues that were declared by the API, as an instance of the bridge knows them. Package declared of the
// store has them for all instances; [Register] looks there every few seconds, and puts back what Redis has lost.
package declarations

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// lookEvery is the interval between looks, each of which is one small read if nothing has changed.
	lookEvery = 3 * time.Second
	// patience bounds one look.
	patience = 5 * time.Second
)

// Config says what a [Register] has. All fields are required.
type Config struct {
	Store *declared.Store
	// IsUsed says whether queues may be declared by the API now; without that nobody looks.
	IsUsed func() bool
	// IsReadOnly is set for an instance that only reads, also after a loss.
	IsReadOnly bool
	// Lost counts a loss when it begins. It must not block.
	Lost   func()
	Logger *slog.Logger
}

// Register is what was declared, as far as this instance knows. Nothing is forgotten because Redis does not answer, or has lost it.
// It is safe for concurrent use.
type Register struct {
	config  Config
	changed chan struct{} // of 1

	// mu is not held during calls of Redis.
	mu    sync.Mutex
	known declared.Set
	// isLossTold is set while Redis does not have what was known.
	isLossTold bool
}

// New returns a register that knows nothing yet; it does no I/O.
func New(config Config) *Register { return &Register{config: config, changed: make(chan struct{}, 1)} }

// Run looks until ctx ends.
func (r *Register) Run(ctx context.Context) {
	isAway := false
	for {
		if r.config.IsUsed() {
			err := r.look(ctx)
			if err != nil && !isAway && ctx.Err() == nil {
				r.config.Logger.Warn("queues declared by the api cannot be read: those that are known stay", "event", "declared", "err", err)
			}
			isAway = err != nil
		}
		if !wait.Sleep(ctx, lookEvery) {
			return
		}
	}
}

func (r *Register) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, _, err := r.Read(ctx)
	return err
}

// Changed receives a value after other declarations have become known.
func (r *Register) Changed() <-chan struct{} { return r.changed }

// Known are the declarations that are known, by the names of the queues, as JSON.
func (r *Register) Known() map[string]string {
	queues := map[string]string{}
	for name, d := range r.now().Queues {
		queues[name] = string(d.Queue)
	}
	return queues
}

func (r *Register) now() declared.Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// Read returns what is declared now, and what time it is by Redis' clock, or zero if nothing has changed. What Redis has lost is put back first.
// The errors are those of [declared.Store.Replace].
func (r *Register) Read(ctx context.Context) (declared.Set, time.Time, error) {
	known := r.now()
	isSame, err := r.config.Store.Has(ctx, known)
	switch {
	case err != nil:
		return known, time.Time{}, err
	case isSame:
		r.tellLoss(false, known)
		return known, time.Time{}, nil
	}
	return r.merge(ctx)
}

// merge reads all, and settles what this instance and Redis know differently.
func (r *Register) merge(ctx context.Context) (declared.Set, time.Time, error) {
	for {
		stored, now, err := r.config.Store.Read(ctx)
		if err != nil {
			return declared.Set{}, now, err
		}
		known := r.now()
		result, isLost := declared.Merge(known, stored, now)
		r.tellLoss(isLost, known)
		if isLost && !r.config.IsReadOnly {
			if err := r.config.Store.Replace(ctx, stored, result); errors.Is(err, declared.ErrMeanwhile) {
				continue
			} else if err != nil {
				return declared.Set{}, now, err
			}
		}
		r.take(known, result)
		return result, now, nil
	}
}

// tellLoss logs and counts a loss when it begins.
func (r *Register) tellLoss(isLost bool, known declared.Set) {
	r.mu.Lock()
	isNews := isLost && !r.isLossTold
	r.isLossTold = isLost
	r.mu.Unlock()
	if !isNews {
		return
	}
	r.config.Lost()
	r.config.Logger.Warn("redis has lost declarations of queues: those that this instance knows count", "event", "declared_lost",
		"queues", slices.Sorted(maps.Keys(known.Queues)), "put_back", !r.config.IsReadOnly)
}

// take makes a set known, unless another one has become known meanwhile.
func (r *Register) take(known, next declared.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known.Is(known) && !next.Is(known) {
		r.known = next
		wait.Wake(r.changed)
	}
}

// Change has decide make another set of the newest one, as often as others change it meanwhile; the same set is no change. It
// returns the set that counts then. Its errors are those of decide, and of [declared.Store.Replace].
func (r *Register) Change(ctx context.Context, decide func(is declared.Set, now time.Time) (declared.Set, error)) (declared.Set, error) {
	for {
		is, now, err := r.merge(ctx)
		if err != nil {
			return is, err
		}
		next, err := decide(is, now)
		if err != nil || next.Is(is) {
			return is, err
		}
		switch err := r.config.Store.Replace(ctx, is, next); {
		case errors.Is(err, declared.ErrMeanwhile):
			continue
		case err != nil:
			return is, err
		}
		r.take(is, next)
		return next, nil
	}
}
