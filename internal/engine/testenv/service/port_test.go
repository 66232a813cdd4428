package service

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReservePort reserves ports while programs are started, and listens there at once. A port
// is reserved once, and only where nobody listens.
func TestReservePort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var forking sync.WaitGroup
	defer forking.Wait()
	defer cancel()
	for range 4 {
		forking.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	seen := map[int]bool{}
	for range 500 {
		port, free, err := ReservePort()
		require.NoError(t, err)
		defer free()
		assert.False(t, seen[port], port)
		seen[port] = true
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", port))
		require.NoError(t, err)
		assert.False(t, canListen(port))
		require.NoError(t, listener.Close())
	}
}
