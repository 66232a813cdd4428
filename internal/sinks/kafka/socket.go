package kafka

import (
	"net"
	"syscall"
	"time"
)

// socket is a TCP connection to a broker. Its reads and writes fail when nothing
// moves for as long as its patience, and never while something does: over a slow
// link a request may take long.
type socket struct {
	net.Conn
	raw      syscall.RawConn // nil if there is none
	patience time.Duration
	// stalled is set for good once nothing moved: kafka-go reads on after an error.
	stalled error
}

func newSocket(tcp net.Conn, patience time.Duration) *socket {
	s := &socket{Conn: tcp, patience: patience}
	if underlying, ok := tcp.(syscall.Conn); ok {
		s.raw, _ = underlying.SyscallConn()
	}
	return s
}

// writeSize is how much is written at once, so that progress is seen.
const writeSize = 32 << 10

// Write implements [net.Conn].
func (s *socket) Write(b []byte) (written int, err error) {
	for s.stalled == nil && written < len(b) {
		if err := s.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
			return written, err
		}
		n, err := s.Conn.Write(b[written:min(len(b), written+writeSize)])
		written += n
		switch {
		case err != nil && !isTimeout(err):
			return written, err
		case n == 0:
			s.stalled = err
		}
	}
	return written, s.stalled
}

// Read implements [net.Conn]. The wait for an answer counts from when the last
// byte of the request has left the machine: the kernel accepts megabytes at once,
// which take long over a slow link.
func (s *socket) Read(b []byte) (int, error) {
	const looks = 10
	unsent, moved := s.unsent(), time.Now()
	for s.stalled == nil {
		deadline := moved.Add(s.patience)
		if unsent > 0 {
			deadline = time.Now().Add(s.patience / looks)
		}
		if err := s.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err := s.Conn.Read(b)
		if n > 0 || !isTimeout(err) {
			return n, err
		}
		if left := s.unsent(); left < unsent {
			unsent, moved = left, time.Now()
		} else if time.Since(moved) >= s.patience {
			s.stalled = err
		}
	}
	return 0, s.stalled
}
