package poller

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// services is what the runners of a shard's batches need of their shard. They
// see nothing else of it. It is safe for concurrent use.
type services struct {
	config *Config
	policy *atomic.Pointer[Policy]
	clock  clock
	news   *news

	index  int // the shard's
	log    *slog.Logger
	redis  *redisView
	routes *routes
	quota  *quota

	shutdown *shutdown
	returns  returns
	// settled, of 1, says that something was settled.
	settled chan struct{}
}

// now is an instant of the shard's clock.
func (s *services) now() time.Duration { return s.clock.now() }

// sinkAnswered is told of answers of the sink.
func (s *services) sinkAnswered(wasDown bool) {
	if wasDown {
		s.log.Info("sink back", "event", "publish")
	}
}
