//go:build unix

package kafka

import (
	"errors"
	"syscall"
)

// ended reports whether the broker has closed an idle connection, or said what
// nobody asked for. It costs one system call and waits for nothing.
func (c *conn) ended() bool {
	if c.socket == nil {
		return false
	}
	ended := false
	err := c.socket.Read(func(fd uintptr) bool {
		var peeked [1]byte
		_, _, err := syscall.Recvfrom(int(fd), peeked[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	return ended || err != nil
}
