//go:build unix

package kafka

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// ended reports whether the broker has closed an idle connection, or said what
// nobody asked for. It costs one system call and waits for nothing.
func (s *socket) ended() bool {
	if s.raw == nil {
		return false
	}
	ended := false
	err := s.raw.Read(func(fd uintptr) bool {
		var peeked [1]byte
		_, _, err := syscall.Recvfrom(int(fd), peeked[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	return ended || err != nil
}

// unsent is how many bytes were written that the peer's machine has not confirmed
// yet, 0 if that is not known.
func (s *socket) unsent() int {
	if s.raw == nil {
		return 0
	}
	unsent := 0
	_ = s.raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil {
			unsent = n
		}
	})
	return unsent
}
