package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/membership"
)

// TestNameThatLivesTwice starts a second bridge under a name that is in use: it
// ends and says why, the first goes on, and nothing comes twice.
func TestNameThatLivesTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 8)
	f.join("pod-0", f.redis)
	f.held("pod-0")
	f.send()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := Run(ctx, f.config("pod-0", f.redis), f.logs["pod-0"].logger())
	require.ErrorIs(t, err, membership.ErrNameTaken)
	assert.ErrorContains(t, err, `instance "pod-0"`)
	assert.ErrorContains(t, err, "leave `instance` empty")
	f.send()
	f.all()
	f.held("pod-0")
	assert.Len(t, f.ended, 1)
}

// TestNameThatComesBack leaves the claims and the heartbeat of a bridge that is
// cut off behind, as kill -9 does, and starts another one under its name.
func TestNameThatComesBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 8)
	address, proxy := proxied(t, f.redis)
	f.join("pod-0", address)
	f.held("pod-0")
	for range 5 { // Some are claimed when it happens.
		f.send()
	}
	proxy.Blackhole(true)
	cut := f.forsake("pod-0")
	f.join("pod-0", f.redis)
	began := time.Now()
	f.all()
	assert.Less(t, time.Since(began), 30*time.Second, "the dead one's claims were taken back, not waited for")
	proxy.Blackhole(false)
	cut()
}
