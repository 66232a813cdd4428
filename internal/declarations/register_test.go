package declarations_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/declarations"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const patience = time.Minute

// instances share a Redis of their own.
type instances struct {
	t      *testing.T
	losses atomic.Int64 // that were counted, by all of them
	server *testenv.Server
	rdb    *redis.Client
}

func newInstances(t *testing.T) *instances {
	t.Helper()
	server := testenv.StartRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return &instances{t: t, server: server, rdb: rdb}
}

// instance is one that looks by itself if it runs.
func (i *instances) instance(isReadOnly, runs bool) (*declarations.Register, *testenv.Log) {
	i.t.Helper()
	log := &testenv.Log{}
	r := declarations.New(declarations.Config{
		Store: declared.New(i.rdb, "p", time.Second), IsUsed: func() bool { return true }, IsReadOnly: isReadOnly, Lost: func() { i.losses.Add(1) }, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if runs {
		ctx, cancel := context.WithCancel(i.t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		i.t.Cleanup(func() { cancel(); running.Wait() })
	}
	return r, log
}

func (i *instances) declare(r *declarations.Register, name string) {
	i.t.Helper()
	_, err := r.Change(i.t.Context(), func(is declared.Set, now time.Time) (declared.Set, error) {
		return is.With(name, []byte(`{"sink":"events"}`), "ann", now), nil
	})
	require.NoError(i.t, err)
}

func (i *instances) remove(r *declarations.Register, name string) {
	i.t.Helper()
	_, err := r.Change(i.t.Context(), func(is declared.Set, now time.Time) (declared.Set, error) { return is.Without(name, now), nil })
	require.NoError(i.t, err)
}

func (i *instances) stored() []string {
	i.t.Helper()
	is, err := declared.New(i.rdb, "p", time.Second).Look(i.t.Context())
	require.NoError(i.t, err)
	return names(is)
}

func names(set declared.Set) []string {
	list := []string{}
	for _, name := range []string{"a", "b", "c"} {
		if _, isThere := set.Queues[name]; isThere {
			list = append(list, name)
		}
	}
	return list
}

// knows waits until an instance knows these, and no others.
func (i *instances) knows(r *declarations.Register, want ...string) {
	i.t.Helper()
	require.Eventually(i.t, func() bool {
		known := r.Known()
		for _, name := range want {
			if known[name] == "" {
				return false
			}
		}
		return len(known) == len(want)
	}, patience, 10*time.Millisecond, "%v", want)
}

// TestAllInstancesHaveIt: what one instance declares or removes, the others know soon, and say that it has changed.
func TestAllInstancesHaveIt(t *testing.T) {
	t.Parallel()
	i := newInstances(t)
	one, _ := i.instance(false, true)
	other, _ := i.instance(false, true)
	i.declare(one, "a")
	i.knows(one, "a")
	<-one.Changed()
	i.knows(other, "a")
	<-other.Changed()
	i.declare(other, "b")
	i.knows(one, "a", "b")
	i.remove(one, "a")
	i.knows(other, "b")
	refused := errors.New("refused")
	_, err := one.Change(t.Context(), func(is declared.Set, _ time.Time) (declared.Set, error) { return is, refused })
	require.ErrorIs(t, err, refused)
	i.remove(one, "b")
	i.knows(other)
}

// TestLoss: what Redis loses is put back by whoever knows it, is told, and nothing is removed; a deletion stays one.
func TestLoss(t *testing.T) {
	t.Parallel()
	i := newInstances(t)
	one, oneLog := i.instance(false, true)
	other, otherLog := i.instance(false, true)
	i.declare(one, "a")
	i.declare(one, "b")
	i.remove(one, "a")
	i.knows(other, "b")
	require.NoError(t, i.rdb.FlushAll(t.Context()).Err())
	require.Eventually(t, func() bool { return len(i.stored()) == 1 }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		return strings.Count(oneLog.String()+otherLog.String(), "redis has lost declarations") > 0
	}, patience, 10*time.Millisecond)
	assert.Contains(t, oneLog.String()+otherLog.String(), "queues=[b] put_back=true")
	assert.Positive(t, i.losses.Load())
	i.knows(one, "b")
	i.knows(other, "b")

	// Somebody who knows nothing declares before anybody has noticed.
	require.NoError(t, i.rdb.FlushAll(t.Context()).Err())
	fresh, _ := i.instance(false, false)
	i.declare(fresh, "c")
	i.knows(one, "b", "c")
	i.knows(other, "b", "c")
	assert.Equal(t, []string{"b", "c"}, i.stored())
	i.remove(one, "b")
	i.knows(other, "c")
	i.remove(one, "c")
	i.knows(other)
	require.NoError(t, i.rdb.FlushAll(t.Context()).Err())
	i.declare(other, "a")
	i.knows(one, "a")
}

// TestFailoverWithAnOlderCopy: an older set that comes back is no change: what is known counts.
func TestFailoverWithAnOlderCopy(t *testing.T) {
	t.Parallel()
	i := newInstances(t)
	one, _ := i.instance(false, true)
	i.declare(one, "a")
	older, err := i.rdb.Dump(t.Context(), "p:{queues}").Result()
	require.NoError(t, err)
	i.declare(one, "b")
	i.remove(one, "a")
	require.NoError(t, i.rdb.RestoreReplace(t.Context(), "p:{queues}", 0, older).Err())
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual([]string{"b"}, i.stored()) }, patience, 10*time.Millisecond)
	i.knows(one, "b")

	// A change that is made before anybody has noticed is made from what is known.
	require.NoError(t, i.rdb.RestoreReplace(t.Context(), "p:{queues}", 0, older).Err())
	i.declare(one, "c")
	assert.Equal(t, []string{"b", "c"}, i.stored())
}

// TestReadOnly: an instance that only reads keeps what it has, and puts nothing back.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	i := newInstances(t)
	writer, _ := i.instance(false, false)
	reader, log := i.instance(true, true)
	i.declare(writer, "a")
	i.knows(reader, "a")
	require.NoError(t, i.rdb.FlushAll(t.Context()).Err())
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "put_back=false") }, patience, 10*time.Millisecond)
	assert.Empty(t, i.stored())
	i.knows(reader, "a")
	fresh, _ := i.instance(false, false)
	i.declare(fresh, "b")
	i.knows(reader, "a", "b")
	assert.Equal(t, []string{"b"}, i.stored())
	assert.Equal(t, 1, strings.Count(log.String(), "redis has lost declarations"))
	assert.EqualValues(t, 1, i.losses.Load(), "as long as it lasts, it is one")
}

// TestRedisIsAway: nothing is forgotten while Redis does not answer, and an instance that starts then has the queues when it is back.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	i := newInstances(t)
	one, log := i.instance(false, true)
	i.declare(one, "a")
	i.server.Stop()
	starts, _ := i.instance(false, true)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "cannot be read") }, patience, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _, err := one.Read(ctx)
	require.ErrorIs(t, err, store.ErrUnavailable)
	i.knows(one, "a")
	i.server.Start()
	i.knows(starts, "a")
	assert.Equal(t, 1, strings.Count(log.String(), "cannot be read"))
}

// TestTwoAtOnce: changes that several instances make at the same time are all there.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	i := newInstances(t)
	var declaring sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		r, _ := i.instance(false, false)
		declaring.Go(func() { i.declare(r, name) })
	}
	declaring.Wait()
	assert.Equal(t, []string{"a", "b", "c"}, i.stored())
}
