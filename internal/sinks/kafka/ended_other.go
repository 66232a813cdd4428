//go:build !unix

package kafka

// ended cannot tell here: a request on a connection that the broker has closed
// has an unknown outcome.
func (c *conn) ended() bool { return false }
