package rabbitmq

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newPipe returns a running wire and its other side, which takes nothing until
// it is read.
func newPipe(t *testing.T) (*wire, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	w := newWire(near, time.Minute)
	var running sync.WaitGroup
	running.Go(w.run)
	t.Cleanup(func() {
		_ = w.Close()
		_ = far.Close()
		running.Wait()
	})
	return w, far
}

func TestWireKeepsOrderAndNeverBlocks(t *testing.T) {
	t.Parallel()
	w, far := newPipe(t)
	var want []byte
	for i := range 5000 {
		piece := bytes.Repeat([]byte{byte(i)}, 1+i%700)
		want = append(want, piece...)
		n, err := w.Write(piece)
		require.NoError(t, err)
		require.Equal(t, len(piece), n)
		clear(piece) // The caller may reuse it.
	}
	require.Equal(t, uint64(len(want)), w.position())
	got := make([]byte, len(want))
	_, err := io.ReadFull(far, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestWireHoldsPublishersBack(t *testing.T) {
	t.Parallel()
	w, far := newPipe(t)
	require.Nil(t, w.full())
	// The first piece is being written, the rest stays in the buffer.
	_, err := w.Write([]byte("x"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.handed() == 1 }, time.Minute, time.Millisecond)
	_, err = w.Write(make([]byte, wireRoom+1))
	require.NoError(t, err)

	drained := w.full()
	require.NotNil(t, drained)
	go func() { _, _ = io.Copy(io.Discard, far) }()
	<-drained
	require.Eventually(t, func() bool { return w.full() == nil }, time.Minute, time.Millisecond)
}

func TestWireTellsWhatWasNotWritten(t *testing.T) {
	t.Parallel()
	w, _ := newPipe(t)
	_, err := w.Write(make([]byte, 100))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.handed() == 100 }, time.Minute, time.Millisecond)
	start := w.position()
	_, err = w.Write(make([]byte, 100))
	require.NoError(t, err)
	require.LessOrEqual(t, w.end(errLost), start, "the second write cannot have left")
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, errLost)
	require.Nil(t, w.full(), "nobody waits for it any more")
}
