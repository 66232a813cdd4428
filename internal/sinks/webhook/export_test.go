package webhook

import "sync"

var ensuring sync.Mutex

// Ensure adds an endpoint that the configuration of the sink does not have: the suite makes
// topics while sinks are open.
func (s *Sink) Ensure(name string, config Config) error {
	ensuring.Lock()
	defer ensuring.Unlock()
	if s.endpoints[name] != nil {
		return nil
	}
	e, err := newEndpoint(name, config, nil)
	s.endpoints[name] = e
	return err
}
