package systemd_test

import (
	"crypto/rand"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/systemd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSend says each state in a message of its own, on a socket in a folder and on one without a file.
func TestSend(t *testing.T) {
	t.Parallel()
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@delaybridge-" + rand.Text()} {
		listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		require.NoError(t, err)
		s, err := systemd.New([]string{"NOTIFY_SOCKET=" + name}, 1)
		require.NoError(t, err)
		buffer := make([]byte, 64)
		for _, state := range []string{systemd.Ready, systemd.Alive, systemd.Stopping} {
			require.NoError(t, s.Send(t.Context(), state))
			n, err := listener.Read(buffer)
			require.NoError(t, err)
			assert.Equal(t, state, string(buffer[:n]))
		}
		require.NoError(t, listener.Close())
		require.ErrorContains(t, s.Send(t.Context(), systemd.Alive), "tell systemd WATCHDOG=1")
	}
}

func TestWithoutSystemdNothingIsSaid(t *testing.T) {
	t.Parallel()
	s, err := systemd.New([]string{"WATCHDOG_USEC=1000000"}, 1)
	require.NoError(t, err)
	assert.NoError(t, s.Send(t.Context(), systemd.Ready))
	assert.Zero(t, s.Watchdog())
}

func TestWatchdog(t *testing.T) {
	t.Parallel()
	const socket = "NOTIFY_SOCKET=/run/systemd/notify"
	for _, c := range []struct {
		environ []string
		want    time.Duration
	}{
		{[]string{socket}, 0},
		{[]string{socket, "WATCHDOG_USEC=30000000"}, 30 * time.Second},
		{[]string{socket, "WATCHDOG_USEC=30000000", "WATCHDOG_PID=42"}, 30 * time.Second},
		{[]string{socket, "WATCHDOG_USEC=30000000", "WATCHDOG_PID=41"}, 0}, // The parent's.
	} {
		s, err := systemd.New(c.environ, 42)
		require.NoError(t, err)
		assert.Equal(t, c.want, s.Watchdog(), c.environ)
	}
	for _, wrong := range []string{"soon", "0", "-1"} {
		_, err := systemd.New([]string{socket, "WATCHDOG_USEC=" + wrong}, 42)
		assert.ErrorContains(t, err, "WATCHDOG_USEC="+wrong)
	}
}
