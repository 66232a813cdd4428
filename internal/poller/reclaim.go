package poller

import (
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// maxReclaims is how many calls reclaim at a time, before the next claim
// renews the lease.
const maxReclaims = 16

// reclaimForeign returns the claims of earlier holders. The claim that was
// refused for their sake is then asked for again.
func (s *shard) reclaimForeign() {
	if s.draining {
		s.advance()
		return
	}
	s.times.takeAt, s.times.renewAt = 0, 0
	reclaimed, _, err := s.reclaim(message.Reclaim{Instance: s.services.config.Instance, Foreign: true})
	s.asking.first = s.services.now() // Nothing was taken so far.
	s.gains.reclaimed(reclaimed)
	if err != nil || reclaimed == 0 {
		// Nothing to reclaim, and yet the claim was refused: do not spin.
		s.times.quietUntil = s.services.now() + s.holding.reclaimPause.Next()
		return
	}
	s.holding.reclaimPause.Reset()
}

// reclaimStrays returns claims of ours that no batch of ours is: a failover has
// taken their settling back, or a settle had no answer for too long.
func (s *shard) reclaimStrays(strays []message.ClaimToken) {
	for _, stray := range strays {
		reclaimed, _, err := s.reclaim(message.Reclaim{Instance: s.services.config.Instance, Stray: stray})
		if err != nil {
			return
		}
		s.inFlight.lose(stray)
		if reclaimed > 0 {
			s.services.log.Warn("a claim came back that had been settled or given up, reclaimed",
				"event", "reclaim", "claim", stray.String(), "messages", reclaimed)
		}
	}
}

// reclaim calls the store until nothing is left, or as often as one look
// allows; complete says that nothing is left.
func (s *shard) reclaim(which message.Reclaim) (reclaimed int, complete bool, err error) {
	defer func() {
		if reclaimed > 0 {
			s.services.config.Observer.Reclaimed(s.services.config.Queue, reclaimed)
			s.times.takeAt = 0
			s.asking.unloaded = true // What was parked is parked again.
			s.services.returns.note(s.services.redis.clock(s.services.now()))
		}
	}()
	for range maxReclaims {
		n, more, err := s.services.redis.reclaim(which)
		if err != nil {
			return reclaimed, false, err
		}
		reclaimed += n
		if !more {
			return reclaimed, true, nil
		}
	}
	return reclaimed, false, nil
}
