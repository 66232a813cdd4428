package poller

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/window"
)

// services is what the runners of a shard's batches need of their shard. They
// see nothing else of it. It is safe for concurrent use.
type services struct {
	*common
	index  int // the shard's
	store  Store
	log    *slog.Logger
	redis  *redisView
	routes *routes
	share  *window.Share

	shutdown *shutdown
	// settled, of 1, says that something was settled.
	settled chan struct{}

	// released counts the messages that are on their way back to what is due:
	// nothing is claimed until they are there, or the parts of a Key could hold
	// each other up for ever.
	released atomic.Int64
	// releasedUpTo is the last due time, in milliseconds, of messages that went
	// back to what is due; 0 is none. No slot is claimed from before all that is due
	// until then was claimed again: it may belong in front of what is in a slot.
	releasedUpTo atomic.Int64
	// again is from when a message that went back can be claimed; 0 is no instant.
	again atomic.Int64
}

// putBack notes a message that goes back to what is due.
func (s *services) putBack(due time.Time) {
	raise(&s.releasedUpTo, max(1, due.UnixMilli()))
}

func raise(mark *atomic.Int64, to int64) {
	for {
		before := mark.Load()
		if before >= to || mark.CompareAndSwap(before, to) {
			return
		}
	}
}

// goneBack notes that a message that went back can be claimed from then on.
func (s *services) goneBack(at time.Duration) {
	at = max(at, 1)
	for {
		before := s.again.Load()
		if before != 0 && before <= int64(at) || s.again.CompareAndSwap(before, int64(at)) {
			return
		}
	}
}

// sinkAnswered is told of answers of the sink.
func (s *services) sinkAnswered(wasDown bool) {
	if wasDown {
		s.log.Info("sink back", "event", "publish")
	}
	if first := !s.news.sinkKnown.Swap(true); first || wasDown {
		s.config.Observer.SinkUp(s.config.Sink.Name, true)
	}
}
