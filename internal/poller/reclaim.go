package poller

import "context"

// reclaimForeign returns the claims of earlier holders. The claim that was
// refused for their sake is then asked for again.
func (s *shard) reclaimForeign() {
	if s.draining {
		s.advance()
		return
	}
	s.takeAt, s.renewAt = 0, 0
	reclaimed, _, err := s.reclaim(true)
	s.firstAsked = s.now() // Nothing was taken so far.
	if err != nil || reclaimed == 0 {
		// Nothing to reclaim, and yet the claim was refused: do not spin.
		s.quietUntil = s.now() + s.reclaimPause.next()
		return
	}
	s.reclaimPause.reset()
}

// reclaimExpired returns claims past their deadline, and tells our own batches
// among them that they have nothing to settle any more.
func (s *shard) reclaimExpired() {
	began := s.now()
	reclaimed, complete, err := s.reclaim(false)
	if reclaimed > 0 {
		s.takeAt = 0
	}
	if err != nil || reclaimed == 0 {
		s.reclaimAt = s.now() + s.MaxSleep
	}
	if !complete {
		return
	}
	for _, b := range s.live {
		if b.expired.Load() < int64(began) {
			b.lost.Store(true)
		}
	}
}

// reclaim calls the store until nothing is left, or as often as one look
// allows; complete says that nothing is left.
func (s *shard) reclaim(foreign bool) (reclaimed int, complete bool, err error) {
	for range maxReclaims {
		n, more, err := s.callReclaim(foreign)
		if err != nil {
			s.redisSilent("reclaim", err)
			return reclaimed, false, err
		}
		reclaimed += n
		if !more {
			complete = true
			break
		}
	}
	s.Observer.Reclaimed(s.Queue, reclaimed)
	switch {
	case reclaimed == 0:
	case foreign: // Of many shards at once, see Obtained.
		s.reclaimedForeign(reclaimed)
	default:
		s.log.Info("claims reclaimed, their deadline had passed", "event", "reclaim", "messages", reclaimed)
	}
	return reclaimed, complete, nil
}

func (s *shard) callReclaim(foreign bool) (reclaimed int, more bool, err error) {
	defer recovered(s.log, "reclaim", &err)
	ctx, cancel := context.WithTimeout(s.callCtx, s.callTimeout())
	defer cancel()
	return s.Store.Reclaim(ctx, s.index, s.Instance, foreign)
}
