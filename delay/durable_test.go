package delay_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// everyVerb makes each verb once, with messages that Memory has scheduled where
// one needs some.
func everyVerb(t *testing.T, p *place, client *delay.Client) map[string]error {
	t.Helper()
	memory := p.client(t)
	for _, id := range []string{"moved", "cancelled"} {
		_, err := memory.Schedule(t.Context(), delay.Message{ID: id, Topic: "t"}, delay.After(time.Hour))
		require.NoError(t, err)
	}
	_, single := client.Schedule(t.Context(), delay.Message{ID: "single", Topic: "t"}, delay.After(time.Hour))
	results, err := client.ScheduleBatch(t.Context(), []delay.Request{
		{Message: delay.Message{ID: "batch", Topic: "t"}, When: delay.After(time.Hour)},
	})
	require.NoError(t, err)
	return map[string]error{
		"schedule": single, "batch": results[0].Err,
		"reschedule": client.Reschedule(t.Context(), delay.Ref{ID: "moved"}, delay.After(time.Minute)),
		"cancel":     client.Cancel(t.Context(), delay.Ref{ID: "cancelled"}),
	}
}

// TestFsyncRefused says what Redis lacks, and changes nothing.
func TestFsyncRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka) // Its Redis is too old, or has no append-only file.
	for verb, err := range everyVerb(t, p, p.client(t, delay.WithDurability(delay.Fsync))) {
		require.ErrorIs(t, err, delay.ErrInvalid, verb)
		for _, state := range []error{delay.ErrUnknown, delay.ErrUnavailable, delay.ErrNotDurable} {
			require.NotErrorIs(t, err, state, verb)
		}
		invalid := new(message.InvalidError)
		require.ErrorAs(t, err, &invalid, verb)
		require.Equal(t, "durability", invalid.Field)
		require.ErrorContains(t, err, "Redis 7.2 or later with appendonly yes", verb)
	}
	client := p.client(t)
	for id, want := range map[string]error{"single": delay.ErrNotFound, "batch": delay.ErrNotFound, "moved": nil, "cancelled": nil} {
		require.ErrorIs(t, client.Cancel(t.Context(), delay.Ref{ID: id}), want, id)
	}
}

// TestFsync has the disk confirm each verb.
func TestFsync(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := storetest.Connect(t, server.URL())
	if known, err := rdb.Do(t.Context(), "command", "info", "waitaof").Slice(); err != nil || known[0] == nil {
		_, _ = fmt.Fprintf(os.Stderr, "\n!!! %s SKIPPED: this Redis has no WAITAOF; make test-matrix runs it on others\n\n", t.Name())
		t.Skip("this Redis has no WAITAOF")
	}
	p := placeIn(t, rdb, kafka)
	for verb, err := range everyVerb(t, p, p.client(t, delay.WithDurability(delay.Fsync))) {
		require.NoError(t, err, verb)
	}
	require.NoError(t, rdb.ConfigSet(t.Context(), "appendfsync", "no").Err())
	_, err := p.client(t, delay.WithDurability(delay.Fsync)).
		Schedule(t.Context(), delay.Message{ID: "late", Topic: "t"}, delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrNotDurable)
	server.Kill()
	server.Start()
	require.NoError(t, p.client(t).Cancel(t.Context(), delay.Ref{ID: "single"}))
}
