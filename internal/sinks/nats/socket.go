package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// unsentMost bounds what the kernel takes and cannot send yet, so that on a slow
	// link what it has taken is soon on its way. It bounds nothing on a fast one,
	// as a small send buffer would where answers take long.
	unsentMost = 64 << 10
	// writeChunk is how much is written under one deadline.
	writeChunk = 32 << 10
	// waited is how long a write must have taken to show that it had to wait for
	// the other side, and so that the other side takes bytes.
	waited = time.Millisecond
)

// socket is the connection's socket. It knows when it made progress last, and
// closes itself when a write fails, or waits while there is none for the
// timeout: the client would drop what it could not write and go on with what
// comes after it.
type socket struct {
	net.Conn
	timeout time.Duration
	fail    func(error)
	stop    func() bool
	born    time.Time
	moved   atomic.Int64 // the last progress, nanoseconds after born
	// hasWaited: since the last check a write had to wait, so the other side takes bytes.
	hasWaited atomic.Bool
}

func newSocket(root context.Context, conn net.Conn, timeout time.Duration, fail func(error)) *socket {
	if tcp, ok := conn.(*net.TCPConn); ok {
		limitUnsent(tcp, unsentMost)
	}
	s := &socket{Conn: conn, timeout: timeout, fail: fail, born: time.Now()}
	s.stop = context.AfterFunc(root, func() { _ = conn.Close() })
	return s
}

// silence is for how long nothing was received, and nothing sent that had to
// wait: what the kernel takes at once, as our pings, proves nothing.
func (s *socket) silence() time.Duration {
	return time.Since(s.born) - time.Duration(s.moved.Load())
}

func (s *socket) progress() { s.moved.Store(int64(time.Since(s.born))) }

// Read implements [net.Conn].
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.progress()
	}
	return n, err
}

// Write implements [net.Conn].
func (s *socket) Write(p []byte) (written int, err error) {
	for written < len(p) {
		began := time.Now()
		if err = s.SetWriteDeadline(began.Add(s.timeout)); err == nil {
			var n int
			n, err = s.Conn.Write(p[written:min(len(p), written+writeChunk)])
			written += n
			if errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || s.silence() < s.timeout) {
				err = nil // Slow, but not dead: it answers what it got before.
			}
		}
		if err != nil {
			s.fail(fmt.Errorf("write to NATS: %w", err))
			return written, err
		}
		if time.Since(began) >= waited {
			s.progress()
			s.hasWaited.Store(true)
		}
	}
	return written, nil
}

// Close implements [net.Conn].
func (s *socket) Close() error {
	s.stop()
	return s.Conn.Close()
}
