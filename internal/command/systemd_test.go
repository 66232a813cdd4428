package command

import (
	"crypto/rand"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestRunUnderSystemd: systemd is told that the bridge is ready, also while Redis is away,
// lives, and stops.
func TestRunUnderSystemd(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]string{"redis": testenv.Redis(t), "no redis": "redis://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := "@delaybridge-" + rand.Text()
			socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
			require.NoError(t, err)
			defer func() { assert.NoError(t, socket.Close()) }()
			require.NoError(t, socket.SetReadDeadline(time.Now().Add(commandTimeout)))
			said := func() string {
				buffer := make([]byte, 64)
				n, err := socket.Read(buffer)
				require.NoError(t, err)
				return string(buffer[:n])
			}

			f := setupWith(t, 1, "nats://127.0.0.1:1", "")
			p := start(t, append(os.Environ(), "NOTIFY_SOCKET="+address, "WATCHDOG_USEC=300000"), "run", "--config", elsewhere(t, f, redis))
			assert.Equal(t, "READY=1", said())
			assert.Equal(t, "WATCHDOG=1", said())
			p.signal(syscall.SIGTERM)
			assert.Equal(t, "STOPPING=1", firstBut(said, "WATCHDOG=1"))
			assert.Equal(t, exitDone, p.wait(), p.output())
		})
	}
}

// firstBut is the first that is said and is something else.
func firstBut(said func() string, other string) string {
	for {
		if text := said(); text != other {
			return text
		}
	}
}
