package outbox

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTokensRise(t *testing.T) {
	t.Parallel()
	var made tokens
	start := time.UnixMilli(1_700_000_000_000)
	var all []string
	for _, offset := range []time.Duration{0, 0, 0, time.Millisecond, -time.Hour, -time.Hour, 0, time.Second} {
		all = append(all, made.next(start.Add(offset)))
	}
	require.True(t, slices.IsSorted(all), all)
	require.Len(t, slices.Compact(all), 8)
	for _, token := range all {
		require.Regexp(t, "^~[-0-9A-Z_a-z]{15}$", token)
	}
	require.Equal(t, "~---------------", encodeToken(0, 0))
	require.Equal(t, "~------0-------0", encodeToken(1, 1))
	require.Equal(t, "~zzzzzzzzzzzzzzz", encodeToken(1<<42-1, 1<<48-1))
	full := tokens{ms: uint64(start.UnixMilli()), random: 1<<47 - 1}
	before := encodeToken(full.ms, full.random)
	require.Greater(t, full.next(start), before, "room to count")
}

func TestTokensNeverRepeat(t *testing.T) {
	t.Parallel()
	const makers, each = 8, 2000
	var wg sync.WaitGroup
	all := make([][]string, makers)
	for i := range makers {
		wg.Go(func() {
			for range each {
				all[i] = append(all[i], processTokens.next(time.Now()))
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, tokens := range all {
		require.True(t, slices.IsSorted(tokens))
		for _, token := range tokens {
			seen[token] = true
		}
	}
	require.Len(t, seen, makers*each)
	var one, other tokens
	require.NotEqual(t, one.next(time.UnixMilli(5)), other.next(time.UnixMilli(5)), "two processes")
}
