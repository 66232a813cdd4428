package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sharding"
	"github.com/delaybridge/delaybridge/internal/store"
)

func TestMembersAfterASilence(t *testing.T) {
	t.Parallel()
	const deadAfter = 3 * time.Second
	var m members
	now := time.Now()
	hear := func(after time.Duration, live ...string) []string {
		now = now.Add(after)
		m.note(now, live, deadAfter)
		return m.live
	}
	assert.Equal(t, []string{"a"}, hear(0, "a"), "the first is alone at once")
	assert.Equal(t, []string{"a", "b", "c"}, hear(time.Second, "a", "b", "c"))
	assert.Equal(t, []string{"a", "c"}, hear(time.Second, "a", "c"), "one that dies is left out at once")
	assert.Equal(t, []string{"a", "c"}, hear(time.Minute, "a"), "all were silent, nobody is taken for dead")
	assert.Equal(t, []string{"a", "c", "d"}, hear(time.Second, "a", "d"), "one that comes is let in at once")
	assert.Equal(t, []string{"a", "d"}, hear(time.Second, "a", "d"), "and that one is dead")
}

func TestWithout(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []int{1, 4}, without([]int{1, 2, 4}, []int{2, 3}))
	assert.Equal(t, []int{}, without(nil, []int{2}))
}

func TestJoined(t *testing.T) {
	t.Parallel()
	assert.Empty(t, joined[int](nil))
	assert.Equal(t, "a,b", joined([]string{"a", "b"}))
	assert.Len(t, strings.Split(joined(make([]int, 1000)), ","), mostListed)
	assert.True(t, strings.HasSuffix(joined(make([]int, 1000)), "0 and 968 more"))
}

func TestSources(t *testing.T) {
	t.Parallel()
	var s sources
	s.note("q", []int{0, 1}, []string{"a"}, 2)
	assert.Empty(t, s.take([]int{0, 1}), "nobody had them before")
	s.note("q", nil, []string{"a", "b"}, 4)
	s.note("q", []int{0, 1, 2, 3}, []string{"a"}, 4)
	owner := sharding.Owner("q", 3, []string{"a", "b"})
	assert.Equal(t, []string{owner}, s.take([]int{3}))
	assert.Empty(t, s.take([]int{3}), "taken")
	assert.Equal(t, []string{"a", "b"}, s.take([]int{0, 1, 2}))
	s.note("q", []int{4}, []string{"a"}, 5)
	assert.Empty(t, s.take([]int{4}), "it is new")
}

func TestLayoutIsReloaded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		layout  store.Layout
		epoch   string
		changed bool
		at      time.Time
		due     bool
	}{
		"settled":     {layout: store.Layout{Epoch: "1-a"}, epoch: "1-a", at: now.Add(1)},
		"no shard":    {layout: store.Layout{Epoch: "1-a"}, at: now.Add(1)},
		"hint":        {layout: store.Layout{Epoch: "1-a"}, changed: true, at: now.Add(1), due: true},
		"from time":   {layout: store.Layout{Epoch: "1-a"}, at: now, due: true},
		"seen":        {layout: store.Layout{Epoch: "1-a"}, epoch: "2-a", at: now.Add(1), due: true},
		"begun":       {layout: store.Layout{Epoch: "1-a", Next: 8}, at: now.Add(1), due: true},
		"not drained": {layout: store.Layout{Epoch: "1-a", Earlier: []int{4}}, at: now.Add(1), due: true},
	} {
		r := &queueRunner{reloadAt: c.at, changed: make(chan struct{}, 1)}
		r.layout.Store(&c.layout)
		if c.epoch != "" {
			r.sawEpoch(c.epoch)
			assert.Equal(t, c.epoch != c.layout.Epoch, len(r.changed) == 1, name)
		}
		assert.Equal(t, c.due, r.layoutDue(now, c.changed), name)
	}
}

// steps is a keeper.
type steps struct {
	n   int
	err error
}

func (s *steps) Step(context.Context) error { s.n++; return s.err }

func TestKeeperWorksWhileItIsOurs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &steps{err: errors.New("redis is away")}
		r := &queueRunner{keeper: k, logger: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		r.done.Go(func() { r.keep(ctx) })
		time.Sleep(10 * time.Second) //nolint:forbidigo // the clock is synctest's
		synctest.Wait()
		require.Zero(t, k.n)
		r.keeps.Store(true)
		time.Sleep(10 * time.Second) //nolint:forbidigo // the clock is synctest's
		synctest.Wait()
		require.Equal(t, 10, k.n)
		cancel()
		r.done.Wait()
	})
}
