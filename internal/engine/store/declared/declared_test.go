package declared_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func newStore(t *testing.T) (all *declared.Store, rdb *redis.Client, key string) {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb = redis.NewClient(options)
	prefix := testenv.Name(t, "p")
	key = keys.Queue{Prefix: prefix}.Declared()
	t.Cleanup(func() {
		require.NoError(t, rdb.Del(context.WithoutCancel(t.Context()), key).Err())
		require.NoError(t, rdb.Close())
	})
	return declared.New(rdb, prefix, store.DefaultTimeout), rdb, key
}

func queue(shards int) json.RawMessage { return fmt.Appendf(nil, `{"shards":%d}`, shards) }

// names are those of a set, with their declarations.
func names(set declared.Set) map[string]string {
	all := map[string]string{}
	for name, d := range set.Queues {
		all[name] = string(d.Queue)
	}
	return all
}

// TestReplace: a set takes the place of the one that was read only; the same call, made again, has no second effect.
func TestReplace(t *testing.T) {
	t.Parallel()
	all, _, _ := newStore(t)
	none, now, err := all.Read(t.Context())
	require.NoError(t, err)
	require.True(t, none.IsNone())
	require.WithinDuration(t, time.Now(), now, time.Minute)
	has, err := all.Has(t.Context(), none)
	require.NoError(t, err)
	require.True(t, has)

	first := none.With("a", queue(1), "ann", now)
	require.NoError(t, all.Replace(t.Context(), none, first))
	require.NoError(t, all.Replace(t.Context(), none, first), "the reply may have been lost")
	require.ErrorIs(t, all.Replace(t.Context(), none, none.With("a", queue(2), "bob", now)), declared.ErrMeanwhile)
	is, _, err := all.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, is)
	looked, err := all.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, looked)
	require.Equal(t, declared.Declaration{Queue: queue(1), Revision: now.UnixMilli(), By: "ann", AtMs: now.UnixMilli()}, is.Queues["a"])

	second := first.With("b", queue(3), "bob", now)
	require.NoError(t, all.Replace(t.Context(), first, second))
	require.Greater(t, second.Queues["b"].Revision, first.Queues["a"].Revision, "in the same millisecond, too")
	require.Equal(t, first.Queues["a"], second.Queues["a"])
	require.ErrorIs(t, all.Replace(t.Context(), none, first), declared.ErrMeanwhile, "a run that comes late")

	third := second.Without("a", now).Without("b", now)
	require.NoError(t, all.Replace(t.Context(), second, third))
	is, _, err = all.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, is.Queues)
	require.False(t, is.IsNone(), "the last one was deleted, and not lost")
	has, err = all.Has(t.Context(), second)
	require.NoError(t, err)
	require.False(t, has)
}

// TestTwoWriters: of writers that have read the same one changes it, and all changes of those that repeat are there.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	all, _, _ := newStore(t)
	var writing sync.WaitGroup
	for writer := range 4 {
		writing.Go(func() {
			for n := range 5 {
				for err := declared.ErrMeanwhile; errors.Is(err, declared.ErrMeanwhile); {
					was, now, errRead := all.Read(t.Context())
					assert.NoError(t, errRead)
					err = all.Replace(t.Context(), was, was.With(fmt.Sprintf("q-%d-%d", writer, n), queue(n), "ann", now))
					assert.True(t, err == nil || errors.Is(err, declared.ErrMeanwhile), err)
				}
			}
		})
	}
	writing.Wait()
	is, _, err := all.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, is.Queues, 20)
}

// TestMerge: nothing is removed by a loss, and of two changes the later one counts.
func TestMerge(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_790_000_000_000)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	one := declared.Set{}.With("a", queue(1), "ann", now)
	two := one.With("b", queue(2), "ann", at(1))
	three := two.Without("a", at(2))
	other := declared.Set{}.With("b", queue(7), "bob", at(3)).With("c", queue(8), "bob", at(4))
	for name, c := range map[string]struct {
		known, stored declared.Set
		want          map[string]string
		isLost        bool
	}{
		"a start":                    {declared.Set{}, two, names(two), false},
		"nothing yet":                {declared.Set{}, declared.Set{}, map[string]string{}, false},
		"no change":                  {two, two, names(two), false},
		"a change":                   {one, two, names(two), false},
		"a deletion":                 {two, three, names(three), false},
		"redis lost all":             {two, declared.Set{}, names(two), true},
		"redis lost a deletion":      {three, two, names(three), true},
		"redis lost a declaration":   {two, one, names(two), true},
		"declared again by another":  {two, other, map[string]string{"a": string(queue(1)), "b": string(queue(7)), "c": string(queue(8))}, true},
		"all were declared again":    {declared.Set{}.With("b", queue(2), "ann", now), other, names(other), false},
		"a replica from before that": {other, two, map[string]string{"a": string(queue(1)), "b": string(queue(7)), "c": string(queue(8))}, true},
	} {
		result, isLost := declared.Merge(c.known, c.stored, at(9))
		assert.Equal(t, c.want, names(result), name)
		assert.Equal(t, c.isLost, isLost, name)
		if isLost { // Whoever knew either takes the result, and does not undo it.
			for _, known := range []declared.Set{c.known, c.stored} {
				again, isLost := declared.Merge(known, result, at(10))
				assert.Equal(t, names(result), names(again), name)
				assert.False(t, isLost, name)
			}
		}
	}
}

// TestUnreadable: what a later version has written is an error, and not nothing.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	all, rdb, key := newStore(t)
	require.NoError(t, rdb.HSet(t.Context(), key, "revision", "nonsense", "declared", "{}").Err())
	_, _, err := all.Read(t.Context())
	require.ErrorContains(t, err, "nonsense")
	require.NoError(t, rdb.HSet(t.Context(), key, "revision", "1 1 x", "declared", "[").Err())
	_, _, err = all.Read(t.Context())
	require.ErrorContains(t, err, "declarations")
}

// TestTooLarge: there is a limit, and it is told.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	all, _, _ := newStore(t)
	none, now, err := all.Read(t.Context())
	require.NoError(t, err)
	long := none.With("a", fmt.Appendf(nil, "%q", strings.Repeat("x", declared.MaxBytes)), "ann", now)
	require.ErrorIs(t, all.Replace(t.Context(), none, long), declared.ErrTooLarge)
}

// TestUnavailable: a Redis that does not answer is an error within the time that the caller has.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { require.NoError(t, rdb.Close()) }()
	all := declared.New(rdb, "p", time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err := all.Read(ctx)
	require.ErrorIs(t, err, store.ErrUnavailable)
	_, err = all.Has(ctx, declared.Set{})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, all.Replace(ctx, declared.Set{}, declared.Set{}.With("a", queue(1), "ann", time.Now())), store.ErrUnavailable)
}
