package store_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestScriptFlush forgets all scripts again and again while there is traffic.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t))
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	ctx, stop := context.WithCancel(t.Context())
	var flushing errgroup.Group
	flushing.Go(func() error {
		for ctx.Err() == nil {
			if err := rdb.ScriptFlush(context.WithoutCancel(ctx)).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range 100 {
		id := fmt.Sprint(i)
		durable := store.Durability{}
		if i%4 == 0 {
			durable = store.Durability{Replicas: 1, Timeout: time.Millisecond} // The path of pipelines.
		}
		answer := q.Producer().Schedule(t.Context(), requests(later(), id), false, durable)[0]
		answered(t, store.Created, answer)
		require.Equal(t, durable.Replicas > 0, answer.NotDurable)
		answered(t, store.Done, q.Producer().Reschedule(t.Context(), id, "", past(), durable))
		switch i % 3 {
		case 0:
			b.finish(acked)
		case 1:
			answered(t, store.Done, q.Producer().Cancel(t.Context(), id, "", durable))
		default:
			b.finish(buried)
			codes, err := inspect.NewAdmin(q).Purge(t.Context(), []string{id})
			require.NoError(t, err)
			require.Equal(t, []store.Code{store.Done}, codes)
		}
		_, ok, err := inspect.Get(t.Context(), q, id, "")
		require.NoError(t, err)
		require.False(t, ok)
	}
	stop()
	require.NoError(t, flushing.Wait())
	s := sound(t, rdb, q)
	require.EqualValues(t, 100, s.Counter("scheduled"), "one call, one effect")
	require.Empty(t, s.Due)
}

// TestDurable asks a replica to confirm.
func TestDurable(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	rdb := connect(t, primary.URL())
	q := storetest.New(t, rdb, 1)
	asked := store.Durability{Replicas: 1, Timeout: 100 * time.Millisecond}
	call := map[string]func(id string) store.Answer{
		"schedule": func(id string) store.Answer {
			return q.Producer().Schedule(t.Context(), requests(later(), id), false, asked)[0]
		},
		"replace": func(id string) store.Answer {
			return q.Producer().Schedule(t.Context(), requests(later(), id), true, asked)[0]
		},
		"reschedule": func(id string) store.Answer {
			create(t, q, id, later())
			return q.Producer().Reschedule(t.Context(), id, "", past(), asked)
		},
		"cancel": func(id string) store.Answer {
			create(t, q, id, later())
			return q.Producer().Cancel(t.Context(), id, "", asked)
		},
	}
	confirmed := func(when string, want bool) {
		t.Helper()
		for verb, do := range call {
			answer := do(verb + when)
			require.NoError(t, answer.Err)
			require.Contains(t, []store.Code{store.Created, store.Done}, answer.Code, "%s: done all the same", verb)
			require.Equal(t, !want, answer.NotDurable, "%s, replica %s", verb, when)
		}
	}
	confirmed("absent", false)

	replica := testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(primary))
	inSync(t, rdb)
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
	asked.Timeout = 1500 * time.Millisecond // A loaded machine may be slow to confirm.
	confirmed("in sync", true)
	asked.Timeout = 100 * time.Millisecond

	replica.Pause()
	confirmed("silent", false)
	replica.Resume()
	require.Eventually(t, func() bool {
		return rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	}, soon, 10*time.Millisecond)

	// What was confirmed is there when the primary is not.
	onReplica := connect(t, replica.URL())
	primary.Kill()
	due, err := onReplica.ZCard(t.Context(), storetest.Key(q.Name(), 0, "due")).Result()
	require.NoError(t, err)
	require.EqualValues(t, 3*3, due, "three of four verbs leave a message, in three situations")
}

// TestFoundIsConfirmed asks a replica to confirm what the call itself does not
// write, on connections that have written nothing: what others have scheduled,
// what a first run did whose answer was lost, a fence that stands.
func TestFoundIsConfirmed(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	replica := testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(primary))
	asked := store.Durability{Replicas: 1, Timeout: 100 * time.Millisecond}
	rdb := connect(t, primary.URL())
	inSync(t, rdb)
	other := func(q *store.Queue) *store.Queue {
		elsewhere := store.New(connect(t, primary.URL()), storetest.Prefix, q.Name())
		_, err := elsewhere.Layout(t.Context())
		require.NoError(t, err)
		return elsewhere
	}
	scheduled := storetest.New(t, rdb, 1)
	repeated := newSceneOn(t, primary.URL())
	repeated.create(later())()
	replica.Pause()
	create(t, scheduled, "x", later())
	answer := other(scheduled).Producer().Schedule(t.Context(), requests(later(), "x"), false, asked)[0]
	answered(t, store.Waiting, answer)
	require.True(t, answer.NotDurable, "schedule has found it")

	repeated.pipelines()
	repeated.lost(func() {
		answer = repeated.far.Producer().Cancel(t.Context(), "x", "", asked)
	}, counted("cancelled", 1), repeated.nothing)
	answered(t, store.Done, answer)
	require.True(t, answer.NotDurable, "a second run has found it")
	require.ErrorContains(t, answer.Missing, "0 of 1 replicas")

	replica.Resume()
	inSync(t, rdb)
	asked.Timeout = soon
	answer = other(scheduled).Producer().Schedule(t.Context(), requests(later(), "x"), false, asked)[0]
	answered(t, store.Waiting, answer)
	require.False(t, answer.NotDurable)
	s := sound(t, rdb, scheduled)
	require.Len(t, s.Meta, 4, "nothing is left behind in meta: %v", s.Meta)
}

// TestNothingIsTouched: a durable call on a shard that was dropped must not
// make its meta again.
func TestNothingIsTouched(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Remove(t.Context(), rdb, q.Name(), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	answer := q.Producer().Schedule(ctx, requests(later(), "x"), false, store.Durability{Replicas: 1, Timeout: time.Millisecond})[0]
	require.Error(t, answer.Err)
	require.Zero(t, rdb.Exists(t.Context(), storetest.Key(q.Name(), 0, "meta")).Val())
}

// TestNearDeadline: a script that has answered is done, though there is no time
// to wait for what was asked, and none for the answer of the wait.
func TestNearDeadline(t *testing.T) {
	t.Parallel()
	asked := store.Durability{Replicas: 9, Timeout: time.Hour}
	for end, hasAnswered := time.Now().Add(time.Minute), false; !hasAnswered; { // On a busy machine the wait's answer may come too late.
		q := storetest.New(t, shared(t), 1) // Each waits anew.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		answer := q.Producer().Schedule(ctx, requests(later(), "x"), false, asked)[0]
		cancel()
		answered(t, store.Created, answer)
		require.True(t, answer.NotDurable)
		hasAnswered = strings.Contains(answer.Missing.Error(), "0 of 9 replicas")
		require.True(t, hasAnswered || time.Now().Before(end), "the wait never answers: %v", answer.Missing)
	}
	silent := miniredis.RunT(t) // It answers all but WAIT.
	silent.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool { return command == "WAIT" })
	fake := storetest.New(t, connect(t, "redis://"+silent.Addr()), 1)
	create(t, fake, "y", later())
	create(t, fake, "z", later())
	for verb, call := range map[string]func(context.Context) store.Answer{
		"schedule": func(ctx context.Context) store.Answer {
			return fake.Producer().Schedule(ctx, requests(later(), "x"), false, asked)[0]
		},
		"reschedule": func(ctx context.Context) store.Answer {
			return fake.Producer().Reschedule(ctx, "y", "", later(), asked)
		},
		"cancel": func(ctx context.Context) store.Answer { return fake.Producer().Cancel(ctx, "z", "", asked) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		answer := call(ctx)
		cancel()
		require.NoError(t, answer.Err, verb)
		require.True(t, answer.NotDurable, verb)
	}
}

// TestLateAnswers: a wait that takes longer than a run may does not set the
// clock back, by which the next run would be too late.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	silent := miniredis.RunT(t) // It answers all but WAIT.
	silent.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool { return command == "WAIT" })
	rdb := connect(t, "redis://"+silent.Addr())
	const runTimeout, callTimeout = 3 * time.Second, 8 * time.Second
	q := store.NewWithTimeout(rdb, storetest.Prefix, storetest.New(t, rdb, 1).Name(), runTimeout)
	for i := range 2 {
		// It is done in one run, which goes on until ctx ends, or not at all.
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		answer := q.Producer().Schedule(ctx, requests(later(), fmt.Sprint(i)), false, store.Durability{Replicas: 1, Timeout: time.Hour})[0]
		cancel()
		answered(t, store.Created, answer)
	}
}

func portOf(s *testenv.Server) string {
	_, port, _ := net.SplitHostPort(s.Addr())
	return port
}

func inSync(t *testing.T, rdb *redis.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		return rdb.InfoMap(t.Context(), "replication").Val()["Replication"]["connected_slaves"] == "1" &&
			rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	}, soon, 10*time.Millisecond, "the replica is in sync")
}

// TestNothingToConfirm asks no replica where nothing was done.
func TestNothingToConfirm(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	asked := store.Durability{Replicas: 1, Timeout: time.Millisecond}
	for _, answer := range []store.Answer{
		q.Producer().Cancel(t.Context(), "nobody", "", asked), q.Producer().Reschedule(t.Context(), "nobody", "", later(), asked),
	} {
		answered(t, store.NotFound, answer)
		require.False(t, answer.NotDurable)
	}
	create(t, q, "x", past())
	newBridge(t, q).claim(1)
	answer := q.Producer().Cancel(t.Context(), "x", "", asked)
	answered(t, store.InFlight, answer)
	require.False(t, answer.NotDurable)
}

// TestChangeWaitsWithoutInfo: who may not ask how many replicas there are waits
// for them all the same.
func TestChangeWaitsWithoutInfo(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(primary))
	rdb := connect(t, primary.URL())
	inSync(t, rdb)
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "&*", "+@all", "-info").Err())
	app := connect(t, "redis://app:secret@"+primary.Addr())
	require.True(t, redis.IsPermissionError(app.Info(t.Context()).Err()))
	const intent, fences, publication, question = 1, 3, 1, 1
	var calls int64
	for range 10 { // A replica that is slow to answer counts as none.
		q := storetest.New(t, rdb, 1)
		before := commandCalls(t, rdb, "wait")
		_, err := store.New(app, storetest.Prefix, q.Name()).Layouts().SetShards(t.Context(), 3)
		require.NoError(t, err)
		if calls = commandCalls(t, rdb, "wait") - before; calls == intent+fences+publication+2*question {
			return
		}
	}
	require.Fail(t, "it does not wait for the replica", "%d calls", calls)
}
