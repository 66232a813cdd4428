package window

// Yield gives back what a queued Reserve was granted meanwhile, and leaves the
// queue: there is nothing to claim for it any more.
func (s *Share) Yield() {
	w := s.window
	w.mu.Lock()
	granted := s.granted
	s.granted = load{}
	s.leaveQueue()
	served := s.freed(granted)
	w.mu.Unlock()
	wake(served)
}
