package redis

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	keepAlive = 30 * time.Second
	// writeChunk is how much is written under one deadline.
	writeChunk = 16 << 10
	// unsentMost bounds what the kernel takes and cannot send yet, so that on a slow link
	// what was written is soon on its way. A pipeline is not much larger than that.
	unsentMost = 64 << 10
)

// socket turns each deadline that the client sets into a time without progress: a slow
// link is no failure.
type socket struct {
	net.Conn
	read, write atomic.Int64 // nanoseconds; 0 is for ever
}

// checkableSocket is a socket without TLS: before the client uses it again, it checks that it is
// still open.
type checkableSocket struct {
	*socket
	syscall.Conn
}

func newSocket(conn net.Conn) net.Conn {
	raw := conn
	if layer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = layer.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(unsentMost) // Without, slow links have less precise deadlines.
	}
	s := &socket{Conn: conn}
	if c, ok := conn.(syscall.Conn); ok {
		return checkableSocket{s, c}
	}
	return s
}

// span is how long it is until t.
func span(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, int64(time.Until(t)))
}

func since(span int64) time.Time {
	if span == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(span))
}

// SetDeadline implements [net.Conn].
func (s *socket) SetDeadline(t time.Time) error {
	s.read.Store(span(t))
	s.write.Store(span(t))
	return s.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (s *socket) SetReadDeadline(t time.Time) error {
	s.read.Store(span(t))
	return s.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.write.Store(span(t))
	return s.Conn.SetWriteDeadline(t)
}

// Read implements [net.Conn].
func (s *socket) Read(p []byte) (int, error) {
	if err := s.Conn.SetReadDeadline(since(s.read.Load())); err != nil {
		return 0, err
	}
	n, err := s.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.read.Store(1) // A second read has waited already.
	}
	return n, err
}

// Write implements [net.Conn].
func (s *socket) Write(p []byte) (written int, err error) {
	for written < len(p) {
		if err := s.Conn.SetWriteDeadline(since(s.write.Load())); err != nil {
			return written, err
		}
		n, err := s.Conn.Write(p[written:min(len(p), written+writeChunk)])
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}
