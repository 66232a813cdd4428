package nats

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublications: one message without an answer stays in its place while the numbers go round the ring.
func TestPublications(t *testing.T) {
	t.Parallel()
	var p publications
	old := p.add(publication{submission: &submission{}, index: 1})
	for range 2 * waitingMost {
		number := p.add(publication{submission: &submission{}, index: 2})
		require.NotEqual(t, old%waitingMost, number%waitingMost)
		w, ok := p.remove(number)
		require.True(t, ok)
		require.Equal(t, 2, w.index)
		_, ok = p.remove(number)
		require.False(t, ok, "it was answered already")
	}
	_, ok := p.remove(old + waitingMost)
	require.False(t, ok, "another number of that place")
	last := p.add(publication{submission: &submission{}, index: 3})
	var numbers []uint64
	for w := range p.all() {
		numbers = append(numbers, w.number)
		p.remove(w.number)
	}
	require.Equal(t, []uint64{last, old}, numbers)
	require.Zero(t, p.count)
	for range waitingMost {
		numbers = append(numbers, p.add(publication{submission: &submission{}}))
	}
	require.Equal(t, waitingMost, p.count)
	require.Len(t, slices.Collect(p.all()), waitingMost)
}
