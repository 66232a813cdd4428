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
	for _, s := range b.behind {
		indices = b.segments.appendTo(indices, s)
	}
	return indices
}

// become gives messages of a batch their fates.
func become(o *order, b *batch, f fate, indices ...int) {
	for _, i := range indices {
		o.set(b, i, f, false)
	}
}

// hears returns what a batch was told since the last call.
func hears(b *batch) (told []passage) {
	told, b.told = b.told, nil
	return told
}

// TestSegmentsWait checks I15 among batches.
func TestSegmentsWait(t *testing.T) {
	t.Parallel()
	var o order
	first, second := keys("a", "b", "", "a", "c"), keys("b", "x", "a", "", "a")
	o.register(first)
	o.register(second)
	assert.Empty(t, waits(first))
	assert.Equal(t, []int{0, 2, 4}, waits(second))

	become(&o, first, fatePassed, 0, 2, 4)
	assert.Empty(t, hears(second), "nobody asked about c, and one of a is left")
	become(&o, first, fatePassed, 3, 1)
	b, a := second.behind[0], second.behind[1]
	assert.Equal(t, []passage{{a, false}, {b, false}}, hears(second))

	// What has passed keeps nobody back; what is broken does, until it is back.
	third := keys("c", "x")
	o.register(third)
	assert.Equal(t, []int{1}, waits(third))
	become(&o, second, fateBroken, 1)
	assert.Equal(t, []passage{{third.behind[0], true}}, hears(third))
	fourth := keys("b", "a")
	become(&o, second, fatePassed, 0, 2)
	become(&o, second, fateBroken, 4)
	o.register(fourth)
	assert.Equal(t, []int{1}, waits(fourth))
	assert.Equal(t, []passage{{fourth.behind[0], true}}, hears(fourth), "told at once")
	become(&o, fourth, fateBroken, 1)

	// Whoever is claimed after it is back is claimed with it, though its batch lives on.
	o.back(second, 4, false)
	o.back(fourth, 1, false)
	fifth := keys("a")
	o.register(fifth)
	assert.Empty(t, waits(fifth))
}

// A claim without an answer may have been made before what went back was there.
func TestSegmentsWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	var o order
	first, asked, later := keys("a"), keys("a"), keys("a")
	o.register(first)
	become(&o, first, fateBroken, 0)
	o.back(first, 0, true)
	o.register(asked)
	assert.Equal(t, []passage{{asked.behind[0], true}}, hears(asked))
	o.answered()
	become(&o, asked, fateBroken, 0)
	o.back(asked, 0, false)
	o.register(later)
	assert.Empty(t, waits(later))
}

// What has nothing under way any more leaves its chains to what is before it.
func TestSegmentsLeave(t *testing.T) {
	t.Parallel()
	var o order
	first, second, third := keys("a", "b"), keys("a", "b"), keys("a")
	o.register(first)
	o.register(second)
	o.register(third)
	o.forget(second)
	again := keys("b", "a")
	o.register(again)
	become(&o, first, fatePassed, 1)
	require.Len(t, again.behind, 2)
	assert.Equal(t, []passage{{again.behind[0], false}}, hears(again), "it waits for the first")
	become(&o, third, fatePassed, 0)
	assert.Equal(t, []passage{{again.behind[1], false}}, hears(again), "and here for the third")
	become(&o, again, fatePassed, 0, 1)
	assert.NotEmpty(t, o.last)
	o.forget(first)
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
	become(&o, first, fatePassed, 0)
	assert.Empty(t, hears(second))
	become(&o, first, fateBroken, 1, 2)
	assert.Equal(t, []passage{{second.behind[0], true}}, hears(second))
	assert.Len(t, o.last, 2)
	become(&o, second, fatePassed, 0, 1)
	o.back(first, 2, false)
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
	become(&o, first, fatePassed, all...)
	assert.Len(t, hears(second), len(names))
	become(&o, second, fatePassed, all...)
	assert.Empty(t, o.last)
}
