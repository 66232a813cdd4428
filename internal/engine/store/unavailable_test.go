package store_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// everyVerb are the producer's verbs and Get, by their errors.
func everyVerb(ctx context.Context, q *store.Queue) map[string]func() error {
	return map[string]func() error{
		"schedule": func() error {
			return q.Producer().Schedule(ctx, requests(later(), "x"), false, store.Durability{})[0].Err
		},
		"replace": func() error {
			return q.Producer().Schedule(ctx, requests(later(), "x"), true, store.Durability{})[0].Err
		},
		"durable": func() error {
			return q.Producer().Schedule(ctx, requests(later(), "y"), false, store.Durability{Replicas: 1, Timeout: time.Millisecond})[0].Err
		},
		"cancel":     func() error { return q.Producer().Cancel(ctx, "x", "", store.Durability{}).Err },
		"reschedule": func() error { return q.Producer().Reschedule(ctx, "x", "", later(), store.Durability{}).Err },
		"get":        func() error { _, _, err := inspect.Get(ctx, q, "x", ""); return err },
		"redrive":    func() error { _, err := inspect.NewAdmin(q).Redrive(ctx, []string{"x"}); return err },
		"purge":      func() error { _, err := inspect.NewAdmin(q).Purge(ctx, []string{"x"}); return err },
	}
}

// fake is a queue in an in-process Redis, which refuses commands while refuse
// says so.
type fake struct {
	*miniredis.Miniredis
	rdb     *redis.Client
	q       *store.Queue
	refusal atomic.Pointer[string]
	left    atomic.Int64 // how many scripts are refused yet
}

func newFake(t *testing.T) *fake {
	f := &fake{Miniredis: miniredis.RunT(t)}
	f.rdb = connect(t, "redis://"+f.Addr())
	f.q = storetest.New(t, f.rdb, 1)
	f.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		if command != "EVALSHA" && command != "EVAL" || f.left.Load() <= 0 {
			return false
		}
		f.left.Add(-1)
		peer.WriteError(*f.refusal.Load())
		return true
	})
	return f
}

func (f *fake) refuse(text string, times int64) {
	f.refusal.Store(&text)
	f.left.Store(times)
}

// TestNotRun answers with errors that prove that a script did not run: the same
// run is repeated until it does, and marks nothing.
func TestNotRun(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script",
		"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN The cluster is down",
		"READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down",
		"MISCONF Errors writing to the AOF file", "NOREPLICAS Not enough good replicas to write.",
		"MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1", "NOSCRIPT No matching script.",
		"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			for verb, do := range everyVerb(t.Context(), f.q) {
				f.refuse(refusal, 3)
				err := do()
				if verb == "durable" {
					require.NoError(t, err)
				}
				require.NoError(t, err, verb)
				require.Zero(t, f.left.Load(), "%s is repeated", verb)
			}
			require.Empty(t, sound(t, f.rdb, f.q).Attempts, "no run is a second run")
		})
	}
}

// TestNotRunUntilTheEnd goes on being refused until ctx ends.
func TestNotRunUntilTheEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.refuse("LOADING Redis is loading the dataset in memory", 1<<40)
	var asking sync.WaitGroup
	for verb := range everyVerb(t.Context(), f.q) {
		asking.Go(func() {
			var err error
			for range 3 { // On a machine that stands still, the last answer may come after the deadline.
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				err = everyVerb(ctx, f.q)[verb]()
				stop()
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
			}
			assert.ErrorIs(t, err, store.ErrUnavailable, verb)
		})
	}
	asking.Wait()
}

// TestRefusedForGood answers with errors that no repetition heals.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for _, refusal := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command", "NOAUTH Authentication required.",
		"WRONGTYPE Operation against a key holding the wrong kind of value", "ERR unknown command",
	} {
		for verb, do := range everyVerb(t.Context(), f.q) {
			var err error
			for range 3 { // On a machine that stands still an answer may come too late, and prove nothing.
				f.refuse(refusal, 1<<40)
				if err = do(); !errors.Is(err, store.ErrUnknown) {
					break
				}
			}
			f.refuse(refusal, 0)
			require.ErrorIs(t, err, store.ErrUnavailable, verb)
			require.ErrorContains(t, err, refusal[:8], verb)
		}
	}
	f.refuse("OOM command not allowed when used memory > 'maxmemory'.", 1)
	require.ErrorIs(t, everyVerb(t.Context(), f.q)["schedule"](), store.ErrFull)
}

// TestUnreachable asks where nobody listens.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	gone := miniredis.RunT(t)
	rdb := connect(t, "redis://"+gone.Addr())
	known := storetest.New(t, rdb, 1) // knows its layout
	fresh := store.New(rdb, storetest.Prefix, known.Name())
	gone.Close()
	for name, q := range map[string]*store.Queue{"known": known, "fresh": fresh} {
		for verb := range everyVerb(t.Context(), q) {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer stop()
				begin := time.Now()
				err := everyVerb(ctx, q)[verb]()
				require.ErrorIs(t, err, store.ErrUnavailable)
				require.NotErrorIs(t, err, store.ErrUnknown)
				require.Less(t, time.Since(begin), soon)
			})
		}
	}
}

// TestEndedContext sends nothing.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for verb, do := range everyVerb(ctx, f.q) {
		err := do()
		require.ErrorIs(t, err, store.ErrUnavailable, verb)
	}
	require.Empty(t, dump(t, f.rdb, f.q).Msg)
}

// TestNoLayout asks for a queue that nobody has made.
func TestNoLayout(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := store.New(rdb, storetest.Prefix, "nobody-made-this")
	for verb, do := range everyVerb(t.Context(), q) {
		require.ErrorIs(t, do(), store.ErrNoLayout, verb)
	}
	_, err := q.Shard(0).Claim(t.Context(), message.ClaimRequest{Token: message.ClaimToken{Instance: "a", Number: 1}})
	require.ErrorIs(t, err, store.ErrNoLayout)
	left, err := rdb.Keys(t.Context(), "*nobody-made-this*").Result()
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestDeadlineEndsTheCall: with go-redis' own settings, which ignore ctx once a
// command is sent, and a Redis that answers nothing.
func TestDeadlineEndsTheCall(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(testenv.Redis(t), "redis://")
	proxy := testenv.NewProxy(t, strings.TrimSuffix(address, "/0"))
	near := storetest.New(t, connect(t, testenv.Redis(t)), 1)
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Hour})
	t.Cleanup(func() { _ = far.Close() })
	q := store.NewWithTimeout(far, storetest.Prefix, near.Name(), time.Hour)
	_, err := q.Layout(t.Context())
	require.NoError(t, err)
	proxy.SwallowReplies(true)
	for verb := range everyVerb(t.Context(), q) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- everyVerb(ctx, q)[verb]() }()
		select {
		case err := <-ended:
			require.Error(t, err, verb)
		case <-time.After(soon):
			t.Errorf("%s did not end with its ctx", verb)
		}
		cancel()
	}
}
