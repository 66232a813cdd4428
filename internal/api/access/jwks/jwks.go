// Package jwks has the public keys by which an issuer signs its JWTs.
//
// A [Source] fetches them from the issuer, or reads them from a file, and keeps them while the
// issuer is away. decide.go says when, keys.go what counts as a key, fetch.go asks the issuer.
//
// Whoever calls may name a key that does not exist. So an unknown key leads to one fetch in ten
// seconds at the most, for whose end only a few callers wait; callers with a known key never do.
package jwks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// The errors of [Source.Find].
var (
	// ErrUnknown: the issuer has no such key.
	ErrUnknown = errors.New("the issuer has no such key")
	// ErrAway: the keys could not be fetched, now or for [KeepFor], or too many calls wait for them.
	ErrAway = errors.New("the issuer's keys are not there")
)

const (
	// waitFor is how long a call waits for a fetch that it asked for, and mostWaiting how many
	// calls may.
	waitFor     = 3 * time.Second
	mostWaiting = 64
)

// Source keeps the keys of one issuer. Run fetches them; all else is safe for concurrent use.
type Source struct {
	config  Config
	logger  *slog.Logger
	fetched func(err error)
	asked   chan struct{} // "fetch now", which may be lost while a fetch is under way

	mu      sync.Mutex
	state   state
	ended   chan struct{} // closed at the end of the next fetch
	waiting int
}

// New returns a source that has no keys before Run has fetched them. It does no I/O. fetched is
// told what came of each fetch.
func New(config Config, logger *slog.Logger, fetched func(err error)) *Source {
	return &Source{
		config: config, logger: logger.With("event", "issuer", "url", config.Issuer), fetched: fetched,
		asked: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// Run fetches the keys until ctx ends: every few minutes, after a failure sooner, and when Find asks.
func (s *Source) Run(ctx context.Context) {
	backoff := wait.Backoff{Initial: firstRetry, Limit: lastRetry}
	for {
		s.fetch(ctx)
		pause := s.config.every()
		if s.isFailing() {
			pause = min(pause, backoff.Next())
		} else {
			backoff.Reset()
		}
		if !wait.SleepOrWake(ctx, pause, s.asked) {
			return
		}
	}
}

func (s *Source) fetch(ctx context.Context) {
	s.mu.Lock()
	s.state.began(time.Now())
	s.mu.Unlock()
	found, err := Fetch(ctx, s.config)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	wasFailing := s.state.failed
	s.state.end(time.Now(), found, err)
	select {
	case <-s.asked: // Whoever asked before it began has its answer.
	default:
	}
	close(s.ended)
	s.ended = make(chan struct{})
	s.mu.Unlock()
	switch {
	case err != nil && !wasFailing:
		s.logger.Warn("keys not fetched, the earlier ones stay", "for", KeepFor, "err", err)
	case err == nil && wasFailing:
		s.logger.Info("keys fetched again", "keys", len(found.Keys))
	}
	s.fetched(err)
}

func (s *Source) isFailing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.failed
}

// Find returns the keys of that id; "" is the id of a token that names none, which an issuer
// with a single key may leave out. Where the key is unknown it waits, up to three seconds, for a fetch if
// there was none in the last ten. The error is [ErrUnknown] or [ErrAway].
func (s *Source) Find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, next := s.state.decide(id, time.Now())
	if next == ask && s.waiting < mostWaiting {
		s.wait(ctx)
		keys, next = s.state.decide(id, time.Now())
	}
	return keys, next.err()
}

// Endpoints are those of the last fetch that was answered.
func (s *Source) Endpoints() Endpoints {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Endpoints
}

// wait returns at the end of the fetch that is under way, or else of the next one, or when the caller has
// waited long enough. It gives the lock up meanwhile.
func (s *Source) wait(ctx context.Context) {
	if !s.state.isUnderWay {
		wait.Wake(s.asked)
	}
	ended := s.ended
	s.waiting++
	s.mu.Unlock()
	wait.SleepOrWake(ctx, waitFor, ended)
	s.mu.Lock()
	s.waiting--
}
