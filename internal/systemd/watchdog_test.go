package systemd_test

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/systemd"
)

// TestWatchdogIsNotFedWhileALoopHangs: after the start the first message comes only when we live again.
func TestWatchdogIsNotFedWhileALoopHangs(t *testing.T) {
	t.Parallel()
	address := "@delaybridge-" + rand.Text()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { assert.NoError(t, socket.Close()) }()
	supervisor, err := systemd.New([]string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=60000"}, 1)
	require.NoError(t, err)

	const hangs = 5
	var looks atomic.Int32
	w := systemd.NewWatchdog(supervisor, func() error {
		if looks.Add(1) <= hangs {
			return errors.New("shard 1 has not looked for 1m")
		}
		return nil
	}, slog.New(slog.DiscardHandler))
	w.Start(t.Context())
	defer w.Stop(t.Context())
	for _, want := range []string{systemd.Ready, systemd.Alive} {
		buffer := make([]byte, 64)
		n, err := socket.Read(buffer)
		require.NoError(t, err)
		assert.Equal(t, want, string(buffer[:n]))
	}
	assert.Greater(t, looks.Load(), int32(hangs), "fed while a loop hung")
}
