package message_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestScores are whole numbers of a float, and give back slot and due time.
func TestScores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slot     int
		due, got int64
	}{{1, 0, 0}, {7, 1_790_000_000_123, 1_790_000_000_123}, {message.MaxSlot, 1<<42 - 1, 1<<42 - 1}, {3, -5, 0}, {3, 1 << 50, 1<<42 - 1}} {
		score := message.ParkedScore(c.slot, time.UnixMilli(c.due))
		require.Equal(t, score, int64(float64(score)))
		slot, ms := message.SplitScore(score)
		require.Equal(t, []any{c.slot, c.got}, []any{slot, ms})
	}
	slot, ms := message.SplitScore(-5)
	require.Equal(t, []any{0, int64(-5)}, []any{slot, ms})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	counts := message.Attempts{Failures: 1, Begun: 2, MaybeOut: 3, Unknowns: 4}
	for stored, want := range map[string]int64{"1 2 3 4": 99, "1 2 3 4 77": 77, "1 2 3 4 -7": -7, "1 2 3 4 0": 0} {
		h, err := message.ParseHistory(stored)
		require.NoError(t, err)
		require.Equal(t, counts, h.Attempts)
		require.Equal(t, want, h.Promised(message.ParkedScore(5, time.UnixMilli(99))).UnixMilli())
		require.Equal(t, stored, h.String())
	}
	for _, bad := range []string{"one two", "1 2 3 4 x"} {
		_, err := message.ParseHistory(bad)
		require.ErrorIs(t, err, message.ErrUndecodable, bad)
	}
}

func TestClaimTokens(t *testing.T) {
	t.Parallel()
	token := message.ClaimToken{Instance: message.NewInstance("a.b:1"), Number: 1<<63 + 1}
	require.Equal(t, token, message.ParseClaimToken(token.String()))
	require.Equal(t, "a.b:1", message.InstanceName(token.Instance))
	require.Zero(t, message.ParseClaimToken("none"))
	require.Zero(t, message.ParseClaimToken("a|b"))
}
