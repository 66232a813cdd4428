package rabbitmq

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeTimeout is how long the broker may take not one byte, unless it has
	// said that it blocks us.
	writeTimeout = 10 * time.Second
	// wireRoom is how many unwritten bytes hold publishers back. Each caller may
	// add one message beyond it.
	wireRoom = 1 << 20
	// pieceMax is how much is written under one deadline.
	pieceMax = 64 << 10
)

// wire is a connection whose Write never blocks: it appends to a buffer that
// run writes out.
//
// The driver holds its locks while it writes and knows no context, so a
// blocking Write would hang publishers, the reader and Close. The buffer also
// joins messages into few system calls, and its counters tell which messages
// certainly never left. Publishers keep it small by asking await first.
type wire struct {
	net.Conn
	isBlocked atomic.Bool   // set by the session's watch
	wake      chan struct{} // holds one token while there may be something to write
	ended     chan struct{} // closed when nothing will be written any more

	mu       sync.Mutex
	buffer   []byte
	accepted uint64 // bytes taken by Write
	given    uint64 // bytes given, or being given, to the operating system
	drained  chan struct{}
	err      error // not nil once ended
}

func newWire(conn net.Conn) *wire {
	return &wire{Conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{}), drained: make(chan struct{})}
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

// await waits until there is room in the buffer.
func (w *wire) await(ctx context.Context) error {
	for {
		w.mu.Lock()
		err, full, drained := w.err, len(w.buffer) > wireRoom, w.drained
		w.mu.Unlock()
		if err != nil || !full {
			return err
		}
		select {
		case <-drained:
		case <-w.ended:
		case <-ctx.Done():
			return endOf(ctx)
		}
	}
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
	}
	return w.given
}

// run writes until the connection ends. The session owns it.
func (w *wire) run() {
	var chunk []byte
	for {
		select {
		case <-w.wake:
		case <-w.ended:
			return
		}
		w.mu.Lock()
		chunk, w.buffer = w.buffer, chunk[:0]
		close(w.drained)
		w.drained = make(chan struct{})
		w.mu.Unlock()
		if err := w.writeOut(chunk); err != nil {
			w.end(err)
			_ = w.Conn.Close() // The reader notices and ends the session.
			return
		}
		if cap(chunk) > 2*wireRoom {
			chunk = nil
		}
	}
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
		if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
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
