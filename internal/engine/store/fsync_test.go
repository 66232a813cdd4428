package store_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// onDisk asks the disk, with time for one that is written once a second.
var onDisk = store.Durability{Fsync: true, Timeout: soon}

// needsFsync skips a test on a Redis before 7.2.
func needsFsync(t *testing.T) {
	t.Helper()
	known, err := shared(t).Do(t.Context(), "command", "info", "waitaof").Slice()
	require.NoError(t, err)
	if known[0] == nil {
		_, _ = fmt.Fprintf(os.Stderr, "\n!!! %s SKIPPED: this Redis has no WAITAOF; make test-matrix runs it on others\n\n", t.Name())
		t.Skip("this Redis has no WAITAOF")
	}
}

// durably makes each producer's verb with a durability; the answer is that the
// verb was done.
func durably(t *testing.T, q *store.Queue, name string, asked store.Durability) map[string]store.Answer {
	t.Helper()
	create(t, q, name+"-moved", later())
	create(t, q, name+"-cancelled", later())
	return map[string]store.Answer{
		"schedule":   q.Producer().Schedule(t.Context(), requests(later(), name), false, asked)[0],
		"replace":    q.Producer().Schedule(t.Context(), requests(later(), name), true, asked)[0],
		"found":      q.Producer().Schedule(t.Context(), requests(later(), name), false, asked)[0],
		"reschedule": q.Producer().Reschedule(t.Context(), name+"-moved", "", past(), asked),
		"cancel":     q.Producer().Cancel(t.Context(), name+"-cancelled", "", asked),
	}
}

// TestNoFsync asks those who cannot confirm what is on their disk: too old, too
// simple, without an append-only file, or not allowed. Nothing is written.
func TestNoFsync(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	private := connect(t, testenvPrivate(t))
	require.NoError(t, private.Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "&*", "-@all",
		"+hello", "+auth", "+ping", "+eval", "+evalsha", "+wait", "+time", "+publish", "+spublish", "+hget", "+hset",
		"+hsetnx", "+hmget", "+hlen", "+hstrlen", "+hdel", "+hexists", "+hincrby", "+zadd", "+zrem", "+zcard", "+zscore", "+zrange",
		"+zrangebyscore", "+del", "+config|get").Err())
	url := "redis://app:secret@" + private.Options().Addr
	for name, rdb := range map[string]*redis.Client{
		"no append-only file": shared(t), "unknown command": connect(t, "redis://"+mini.Addr()), "denied": connect(t, url),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, rdb, 1)
			for verb, answer := range durably(t, q, "x", onDisk) {
				require.ErrorIs(t, answer.Err, store.ErrNoFsync, verb)
				require.NotErrorIs(t, answer.Err, store.ErrUnknown, verb)
				require.NotErrorIs(t, answer.Err, store.ErrUnavailable, verb)
				require.False(t, answer.NotDurable, verb)
			}
			cancel(t, q, "x-moved") // With what there is, calls go on.
			cancel(t, q, "x-cancelled")
			require.Equal(t, store.NotFound, cancel(t, q, "x"), "nothing was scheduled")
			replicas := store.Durability{Replicas: 1, Timeout: time.Millisecond}
			require.ErrorContains(t, q.Producer().Schedule(t.Context(), requests(later(), "y"), false, replicas)[0].Missing, "0 of 1 replicas")
		})
	}
}

// TestFsync asks the disk to confirm, one that is slow, one that is never
// asked, and one that is taken away.
func TestFsync(t *testing.T) {
	t.Parallel()
	needsFsync(t)
	server := testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := connect(t, server.URL())
	set := func(name, value string) {
		t.Helper()
		require.NoError(t, rdb.ConfigSet(t.Context(), name, value).Err())
	}
	q := storetest.New(t, rdb, 1)
	done := []store.Code{store.Created, store.Replaced, store.Waiting, store.Done}
	for verb, answer := range durably(t, q, "slow", onDisk) {
		require.NoError(t, answer.Err, verb)
		require.Contains(t, done, answer.Code, verb)
		require.False(t, answer.NotDurable, "%s: %v", verb, answer.Missing)
	}
	set("appendfsync", "no")
	hasty := store.Durability{Fsync: true, Timeout: 50 * time.Millisecond}
	for verb, answer := range durably(t, q, "never", hasty) {
		require.NoError(t, answer.Err, verb)
		require.Contains(t, done, answer.Code, verb)
		require.True(t, answer.NotDurable, verb)
		require.ErrorContains(t, answer.Missing, "disk", verb)
	}
	set("appendfsync", "always")
	kept := q.Producer().Schedule(t.Context(), requests(later(), "kept"), false, onDisk)[0]
	answered(t, store.Created, kept)
	require.False(t, kept.NotDurable)
	server.Kill()
	server.Start()
	require.Equal(t, store.Done, cancel(t, q, "kept"), "it has survived")

	set("appendonly", "no")
	first := q.Producer().Schedule(t.Context(), requests(later(), "off"), false, onDisk)[0]
	answered(t, store.Created, first)
	require.True(t, first.NotDurable, "this client has asked before")
	require.ErrorContains(t, first.Missing, "appendonly")
	for verb, answer := range durably(t, q, "then", onDisk) {
		require.ErrorIs(t, answer.Err, store.ErrNoFsync, verb)
	}
	set("appendonly", "yes")
	back := q.Producer().Schedule(t.Context(), requests(later(), "back"), false, onDisk)[0]
	answered(t, store.Created, back)
	require.False(t, back.NotDurable)
	sound(t, rdb, q)
}

// TestFsyncEverySecond: what WAITAOF says is believed where it waits for the fsync, which
// comes once a second, and refused where it does not.
func TestFsyncEverySecond(t *testing.T) {
	t.Parallel()
	needsFsync(t)
	rdb := connect(t, testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "everysec").URL())
	q := storetest.New(t, rdb, 1)
	ask := func(id string) store.Answer {
		return q.Producer().Schedule(t.Context(), requests(later(), id), false, onDisk)[0]
	}
	began := time.Now()
	first, second, third := ask("first"), ask("second"), ask("third")
	if errors.Is(first.Err, store.ErrNoFsync) {
		require.ErrorContains(t, first.Err, "too early")
		require.Equal(t, store.NotFound, cancel(t, q, "first"), "nothing was written")
		return
	}
	for _, answer := range []store.Answer{first, second, third} {
		answered(t, store.Created, answer)
		require.False(t, answer.NotDurable, "%v", answer.Missing)
	}
	require.Greater(t, time.Since(began), time.Second, "it says so before the disk has it")
}

// TestConfirmsEarly: which servers do.
func TestConfirmsEarly(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"7.2.4": true, "7.4.2": true, "8.0.2": false, "": false} {
		require.Equal(t, want, conn.ConfirmsEarly(version, "everysec"), version)
		require.False(t, conn.ConfirmsEarly(version, "always"), version)
	}
}

// TestFsyncOfSecondRun: what a first run did is told, even where nobody can
// confirm it any more.
func TestFsyncOfSecondRun(t *testing.T) {
	t.Parallel()
	needsFsync(t)
	s := newSceneOn(t, testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always").URL())
	s.create(later())()
	s.pipelines()
	warm := s.far.Producer().Reschedule(t.Context(), "x", "", later(), onDisk) // The question is asked once.
	answered(t, store.Done, warm)
	require.False(t, warm.NotDurable)
	var answer store.Answer
	asked := store.Durability{Fsync: true, Timeout: time.Second}
	s.lost(func() { answer = s.far.Producer().Cancel(t.Context(), "x", "", asked) }, counted("cancelled", 1), func() {
		require.NoError(t, s.rdb.ConfigSet(t.Context(), "appendonly", "no").Err())
		s.far.ForgetFsync(s.Context()) // The second run meets another node.
	})
	answered(t, store.Done, answer)
	require.True(t, answer.NotDurable)
}

// TestFsyncInCluster asks the node of each shard.
func TestFsyncInCluster(t *testing.T) {
	t.Parallel()
	needsFsync(t)
	c := testenv.StartCluster(t, "appendonly yes", "appendfsync always")
	rdb := clustered(t, c)
	verbsWork(t, rdb, onDisk)

	q := storetest.New(t, rdb, 6)
	without := c.PrimaryOf(storetest.Key(q.Name(), 0, "meta"))
	require.NoError(t, connect(t, without.URL()).ConfigSet(t.Context(), "appendonly", "no").Err())
	refused, confirmed := 0, 0
	var ids []string
	for i := range 60 {
		ids = append(ids, fmt.Sprint(i))
	}
	for i, answer := range q.Producer().Schedule(t.Context(), requests(later(), ids...), false, onDisk) {
		if answer.Err != nil {
			require.ErrorIs(t, answer.Err, store.ErrNoFsync)
			require.Equal(t, store.NotFound, cancel(t, q, ids[i]))
			refused++
			continue
		}
		answered(t, store.Created, answer)
		require.False(t, answer.NotDurable, "%v", answer.Missing)
		confirmed++
	}
	require.Positive(t, refused)
	require.Positive(t, confirmed)
}
