package rabbitmq

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// wireRoom is how many unwritten bytes hold channels back. What waits behind
	// them is certainly not handed over. One message may go beyond it.
	wireRoom = 128 << 10
	// kernelRoom is how many bytes the operating system may keep for a connection:
	// left to itself it takes megabytes, which on a slow link are many seconds
	// that nobody sees, and all of which are Unknown where the connection is lost.
	kernelRoom = 128 << 10
	// pieceMax is how much is written under one deadline.
	pieceMax = 64 << 10
)

// wire is a connection whose Write never blocks: it appends to a buffer that
// run writes out.
//
// The driver holds its locks while it writes and knows no context, so a
// blocking Write would hang publishers, the reader and Close. The buffer also
// joins messages into few system calls, and its counters tell which messages
// certainly never left. Channels keep it small by asking full first.
type wire struct {
	net.Conn
	patience  time.Duration // how long the broker may take not one byte, unless it has said that it blocks us
	isBlocked atomic.Bool   // the broker says that it takes no messages
	wake      chan struct{} // holds one token while there may be something to write
	ended     chan struct{} // closed when nothing will be written any more

	mu       sync.Mutex
	buffer   []byte
	accepted uint64 // bytes taken by Write
	given    uint64 // bytes given, or being given, to the operating system
	drained  chan struct{}
	err      error // not nil once ended
}

func newWire(conn net.Conn, patience time.Duration) *wire {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(kernelRoom) // If it fails, the buffer is as large as the system likes.
	}
	return &wire{Conn: conn, patience: patience, wake: make(chan struct{}, 1), ended: make(chan struct{}), drained: make(chan struct{})}
}

// Write takes all of p, which the caller may reuse.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	w.buffer = append(w.buffer, p...)
	w.accepted += uint64(len(p))
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// position is how many bytes Write has taken.
func (w *wire) position() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accepted
}

// full returns nil if there is room, else what is closed when there may be.
func (w *wire) full() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(w.buffer) <= wireRoom {
		return nil
	}
	return w.drained
}

// handed is how many bytes the operating system was given, or is being given.
func (w *wire) handed() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.given
}

// Close drops what is not written and closes the connection.
func (w *wire) Close() error {
	w.end(net.ErrClosed)
	return w.Conn.Close()
}

// end lets nothing more be written, and returns how many bytes may have been.
func (w *wire) end(err error) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.buffer = nil
		close(w.ended)
		close(w.drained)
	}
	return w.given
}

// run writes until the connection ends, whose goroutine it is.
func (w *wire) run() {
	var chunk []byte
	for {
		select {
		case <-w.wake:
		case <-w.ended:
			return
		}
		chunk = w.take(chunk)
		if err := w.writeOut(chunk); err != nil {
			w.end(err)
			_ = w.Conn.Close() // The driver's reader notices.
			return
		}
		if cap(chunk) > 2*wireRoom {
			chunk = nil
		}
	}
}

// take returns the bytes to write, and makes the old chunk the new buffer.
func (w *wire) take(chunk []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil
	}
	chunk, w.buffer = w.buffer, chunk[:0]
	close(w.drained)
	w.drained = make(chan struct{})
	return chunk
}

func (w *wire) writeOut(chunk []byte) error {
	for len(chunk) > 0 {
		piece := chunk[:min(len(chunk), pieceMax)]
		if err := w.give(len(piece)); err != nil {
			return err
		}
		if err := w.writePiece(piece); err != nil {
			return err
		}
		chunk = chunk[len(piece):]
	}
	return nil
}

// give counts bytes before they are written, so that given is never too low.
func (w *wire) give(count int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.given += uint64(count)
	}
	return w.err
}

func (w *wire) writePiece(piece []byte) error {
	for {
		if err := w.SetWriteDeadline(time.Now().Add(w.patience)); err != nil {
			return err
		}
		n, err := w.Conn.Write(piece)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 && !w.isBlocked.Load() {
			return err
		}
		piece = piece[n:]
	}
}
