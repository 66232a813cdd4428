package layout_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestVectors pins where messages live: with any other answer, what is stored
// would not be found again.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		key, id               string
		of1, of2, of8, of1000 int
	}{
		{"", "", 0, 1, 7, 332},
		{"", "a", 0, 1, 6, 894},
		{"", "order-42/timeout", 0, 1, 4, 297},
		{"order-42", "order-42/timeout", 0, 1, 2, 694},
		{"order-42", "another", 0, 1, 2, 694},
		{"", "order-42", 0, 1, 2, 694},
		{"ключ", "1", 0, 0, 6, 18},
		{"", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 0, 0, 7, 480},
	} {
		for shards, want := range map[int]int{1: v.of1, 2: v.of2, 8: v.of8, 1000: v.of1000} {
			require.Equal(t, want, layout.Home(v.key, v.id, shards), "%q %q of %d", v.key, v.id, shards)
		}
	}
}

// TestKeyDecides keeps the messages of one key together.
func TestKeyDecides(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringN(1, 255, -1).Draw(t, "key")
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		shards := rapid.IntRange(1, 4096).Draw(t, "shards")
		home := layout.Home(key, a, shards)
		require.Equal(t, home, layout.Home(key, b, shards))
		require.Equal(t, home, layout.Home("", key, shards), "an id alone hashes as a key would")
		require.True(t, 0 <= home && home < shards)
	})
}

// TestGrowth moves a message to a new shard or not at all.
func TestGrowth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		old := rapid.IntRange(1, 500).Draw(t, "old")
		grown := old + rapid.IntRange(0, 500).Draw(t, "more")
		before, after := layout.Home("", id, old), layout.Home("", id, grown)
		require.True(t, before == after || after >= old, "%d of %d, %d of %d", before, old, after, grown)
	})
}

// TestBalance spreads ids that differ little.
func TestBalance(t *testing.T) {
	t.Parallel()
	const n = 100_000
	for _, shards := range []int{2, 8, 64} {
		count := make([]int, shards)
		moved := 0
		for i := range n {
			id := fmt.Sprint("order-", i)
			home := layout.Home("", id, shards)
			count[home]++
			if layout.Home("", id, 2*shards) != home {
				moved++
			}
		}
		for shard, got := range count {
			require.InEpsilon(t, n/shards, got, 0.12, "shard %d of %d", shard, shards)
		}
		require.InEpsilon(t, n/2, moved, 0.05, "half of them move when the shards double")
	}
}
