//go:build !unix

package kafka

// ended cannot tell here: a request on a connection that the broker has closed
// has an unknown outcome.
func (s *socket) ended() bool { return false }

// unsent cannot tell here: the wait for an answer counts from the last write.
func (s *socket) unsent() int { return 0 }
