package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/fit"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// ErrRefused is returned for a Redis on which messages would be lost.
var ErrRefused = errors.New("this redis cannot be used")

// The pauses between two checks of a Redis that does not answer.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 2 * time.Second
)

// Gate checks the settings of Redis, at each primary of a Cluster, once for all
// queues of the process. Nothing is polled before it is open.
type Gate struct {
	rdb    redis.UniversalClient
	health *Redis
	logger *slog.Logger
	// open is closed when a node has answered and no answer was refused.
	open chan struct{}

	mu      sync.Mutex
	checked map[string]bool // the nodes that have answered, by address
}

// NewGate returns a closed gate.
func NewGate(rdb redis.UniversalClient, health *Redis, logger *slog.Logger) *Gate {
	return &Gate{rdb: rdb, health: health, logger: logger, open: make(chan struct{}), checked: map[string]bool{}}
}

// Opened is closed once a node has answered and no answer was refused.
func (c *Gate) Opened() <-chan struct{} { return c.open }

// Run checks until every node has answered once, one is refused (then it calls
// fatal), or ctx ends. A node that does not answer delays the queues only if no
// other one answers.
func (c *Gate) Run(ctx context.Context, fatal func(error)) {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	var trouble telemetry.Trouble
	isOpen := false
	for {
		answered, err := c.Try(ctx)
		if errors.Is(err, ErrRefused) {
			fatal(err)
			return
		}
		if answered && !isOpen {
			isOpen = true
			close(c.open)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		c.health.Heard(err)
		if cause := rediserr.Cause(err); trouble.News(cause) {
			c.logger.Warn("redis unavailable, trying again", "event", "redis_check", "reason", cause, "err", err)
		}
		if !wait.Sleep(ctx, pause.Next()) {
			return
		}
	}
}

// Try asks the nodes that have not answered yet; answered says that some have.
// It refuses a Redis on which messages would be lost, and warns of settings with
// which they may be lost, and of settings that an ACL hides. Other errors mean
// that a node did not answer.
func (c *Gate) Try(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok {
		err := checkNode(ctx, c.rdb, c.logger)
		return err == nil, err
	}
	var problems []error // under mu
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		addr := node.Options().Addr
		if c.isChecked(addr) {
			return nil
		}
		err := checkNode(ctx, node, c.logger.With("node", addr))
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			problems = append(problems, fmt.Errorf("node %s: %w", addr, err))
		} else {
			c.checked[addr] = true
		}
		return nil // Ask the others all the same.
	})
	return len(c.checked) > 0, errors.Join(append(problems, err)...)
}

func (c *Gate) isChecked(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checked[addr]
}

func checkNode(ctx context.Context, rdb redis.UniversalClient, logger *slog.Logger) error {
	text, err := rdb.Info(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		logger.Warn("redis hides its settings", "event", "redis_check", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask redis for its settings: %w", err)
	}
	for _, f := range fit.Settings(fit.ParseInfo(text)) {
		if f.Level == check.Error {
			return fmt.Errorf("%w: %s", ErrRefused, f.What)
		}
		logger.Warn(f.What, "event", "redis_check")
	}
	return nil
}
