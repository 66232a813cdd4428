package poller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// keys makes a batch with a message of each Key; an empty one is no Key.
func keys(keys ...string) *batch {
	var claim message.Claim
	for _, key := range keys {
		claim.Messages = append(claim.Messages, keyed("m", key, time.Now()))
	}
	return newBatch(claim, &lease{}, time.Minute)
}

// waits are the messages of a batch that wait.
func waits(b *batch) (indices []int) {
	for _, s := range b.fates.behind {
		indices = b.fates.appendTo(indices, s)
	}
	return indices
}

func are(f fate) func(int) fate { return func(int) fate { return f } }

// TestSegmentsWait checks I15 among batches.
func TestSegmentsWait(t *testing.T) {
	t.Parallel()
	var o order
	first, second := keys("a", "b", "", "a", "c"), keys("b", "x", "a", "", "a")
	o.register(first)
	o.register(second)
	assert.Empty(t, waits(first))
	assert.Equal(t, []int{0, 2, 4}, waits(second))

	first.fates.set([]int{0, 2, 4}, are(fatePassed))
	assert.Empty(t, second.fates.take(), "nobody asked about c, and one of a is left")
	first.fates.set([]int{3, 1}, are(fatePassed))
	b, a := second.fates.behind[0], second.fates.behind[1]
	assert.Equal(t, []passage{{a, false}, {b, false}}, second.fates.take())
	assert.Len(t, second.changed, 1)

	// What has passed keeps nobody back; what is broken does, until it has ended.
	third := keys("c", "x")
	o.register(third)
	assert.Equal(t, []int{1}, waits(third))
	second.fates.set([]int{1}, are(fateBroken))
	assert.Equal(t, []passage{{third.fates.behind[0], true}}, third.fates.take())
	fourth := keys("b", "a")
	second.fates.set([]int{0, 2}, are(fatePassed))
	second.fates.set([]int{4}, are(fateBroken))
	o.register(fourth)
	assert.Equal(t, []int{1}, waits(fourth))
	assert.Equal(t, []passage{{fourth.fates.behind[0], true}}, fourth.fates.take(), "told at once")
}

// A batch that has ended leaves its chains to the one before it.
func TestSegmentsAreForgotten(t *testing.T) {
	t.Parallel()
	var o order
	first, second, third := keys("a", "b"), keys("a", "b"), keys("a")
	o.register(first)
	o.register(second)
	o.register(third)
	o.forget(second)
	again := keys("b", "a")
	o.register(again)
	first.fates.set([]int{1}, are(fatePassed))
	require.Len(t, again.fates.behind, 2)
	assert.Equal(t, []passage{{again.fates.behind[0], false}}, again.fates.take(), "it waits for the first")
	third.fates.set([]int{0}, are(fatePassed))
	assert.Equal(t, []passage{{again.fates.behind[1], false}}, again.fates.take(), "and here for the third")
	for _, b := range []*batch{again, first, third} {
		assert.NotEmpty(t, o.last)
		o.forget(b)
	}
	assert.Empty(t, o.last)
}

// What is parked when it is claimed waits for nobody, and is no predecessor; but
// others of its chain that are not parked have to wait for it to be decided.
func TestParkedMessagesOfSegments(t *testing.T) {
	t.Parallel()
	var o order
	first, second := keys("a", "b", "a"), keys("a", "b")
	first.parked = []parking{{index: 1}, {index: 2}}
	o.register(first)
	o.register(second)
	assert.Equal(t, []int{0}, waits(second))
	first.fates.set([]int{0}, are(fatePassed))
	assert.Empty(t, second.fates.take())
	first.fates.set([]int{1, 2}, are(fateBroken))
	assert.Equal(t, []passage{{second.fates.behind[0], true}}, second.fates.take())
	o.forget(first)
	assert.Len(t, o.last, 2)
	o.forget(second)
	assert.Empty(t, o.last)
}

func TestManySegmentsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	var o order
	names := make([]string, 3*slabSize+1)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	first, second := keys(names...), keys(names...)
	o.register(first)
	o.register(second)
	all := waits(second)
	require.Len(t, all, len(names))
	first.fates.set(all, are(fatePassed))
	assert.Len(t, second.fates.take(), len(names))
	o.forget(first)
	o.forget(second)
	assert.Empty(t, o.last)
}
