package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// refusal is a state of a real server in which it refuses scripts.
type refusal struct {
	name, says string // nothing where it depends on who is first: the refusal, or the end of the connection
	// begin brings it about, by a connection that is open, and end ends it.
	begin, end func(t *testing.T, admin *redis.Client, server *testenv.Server)
}

// set is a change of the server's configuration, or another command.
func set(commands ...string) func(*testing.T, *redis.Client, *testenv.Server) {
	return func(t *testing.T, admin *redis.Client, _ *testenv.Server) {
		t.Helper()
		for _, command := range commands {
			var args []any
			for arg := range strings.FieldsSeq(command) {
				args = append(args, arg)
			}
			require.NoError(t, admin.Do(t.Context(), args...).Err(), command)
		}
	}
}

var refusals = []refusal{
	{"the disk is full", "MISCONF", breakSnapshots, set("CONFIG SET stop-writes-on-bgsave-error no")},
	{"replicas are missing", "NOREPLICAS", set("CONFIG SET min-replicas-to-write 1"), set("CONFIG SET min-replicas-to-write 0")},
	{"it has become a replica", "READONLY", set("REPLICAOF 127.0.0.1 1"), set("REPLICAOF NO ONE")},
	{
		"it is a replica that has lost its primary", "MASTERDOWN",
		set("CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"), set("REPLICAOF NO ONE"),
	},
	{"somebody's script runs", "BUSY", keepBusy, func(t *testing.T, admin *redis.Client, _ *testenv.Server) {
		t.Helper()
		require.NoError(t, admin.ScriptKill(t.Context()).Err())
	}},
	{"it has too many clients", "", func(t *testing.T, admin *redis.Client, server *testenv.Server) {
		t.Helper()
		set("CONFIG SET maxclients 1", "CLIENT KILL TYPE normal")(t, admin, server)
	}, set("CONFIG SET maxclients 1000")},
}

// breakSnapshots has each snapshot fail, as on a disk that is full: where it belongs a folder stands in the way.
func breakSnapshots(t *testing.T, admin *redis.Client, server *testenv.Server) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(server.Dir(), "in-the-way"), 0o777))
	require.NoError(t, admin.ConfigSet(t.Context(), "save", "3600 1").Err())
	require.NoError(t, admin.BgSave(t.Context()).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	}, soon, 5*time.Millisecond)
}

// keepBusy runs a script that does not end by itself.
func keepBusy(t *testing.T, admin *redis.Client, server *testenv.Server) {
	t.Helper()
	set("CONFIG SET lua-time-limit 1")(t, admin, server)
	other := connect(t, server.URL(), func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, -1 })
	var running sync.WaitGroup
	running.Go(func() { _ = other.Eval(context.WithoutCancel(t.Context()), "while true do end", nil).Err() })
	t.Cleanup(func() {
		_ = admin.ScriptKill(context.WithoutCancel(t.Context())).Err() // Where the test has not come so far.
		running.Wait()
	})
	require.Eventually(t, func() bool {
		err := admin.Get(t.Context(), "x").Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	}, soon, 5*time.Millisecond)
}

// TestRealRefusals has a real server refuse scripts for each reason that passes. Calls that end meanwhile say that
// nothing was done, and why. Those that have time are done when it is over, and mark nothing; so are a claim and
// the settlement of one.
func TestRealRefusals(t *testing.T) {
	t.Parallel()
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartRedis(t, "--dbfilename", "in-the-way")
			admin, rdb := connect(t, server.URL(), func(o *redis.Options) { o.PoolSize = 1 }), connect(t, server.URL())
			q := storetest.New(t, admin, 1)
			b := newBridge(t, q)
			create(t, q, "x", later())
			create(t, q, "dead", past())
			create(t, q, "purged", past())
			b.settle(b.claim(10), buried)
			create(t, q, "in flight", past())
			claim := b.claim(1)
			create(t, q, "due", past())

			far := store.New(rdb, storetest.Prefix, q.Name())
			_, err := far.AwaitLayout(t.Context())
			require.NoError(t, err)
			r.begin(t, admin, server)
			verbs := func(ctx context.Context) map[string]func() error {
				all := everyVerb(ctx, far)
				delete(all, "get") // It changes nothing, nor does a schedule of what is there.
				all["schedule"] = func() error {
					return far.Producer().Schedule(ctx, requests(later(), "new"), false, store.Durability{})[0].Err
				}
				all["cancel nothing"] = func() error { return far.Producer().Cancel(ctx, "nothing", "", store.Durability{}).Err }
				all["reschedule nothing"] = func() error { return far.Producer().Reschedule(ctx, "nothing", "", later(), store.Durability{}).Err }
				all["redrive"] = func() error { _, err := inspect.NewAdmin(far).Redrive(ctx, []string{"dead"}); return err }
				all["purge"] = func() error { _, err := inspect.NewAdmin(far).Purge(ctx, []string{"purged"}); return err }
				return all
			}
			request := b.Request(10)
			claims := map[string]func() error{
				"claim":  func() error { _, err := far.Shard(0).Claim(t.Context(), request); return err },
				"settle": func() error { _, err := far.Shard(0).Settle(t.Context(), settlement(claim, acked)); return err },
			}
			var asking sync.WaitGroup
			for verb := range verbs(t.Context()) {
				asking.Go(func() {
					var err error
					began := time.Now()
					for range 20 { // On a machine that stands still, the last answer may come after the deadline, or none.
						ctx, stop := context.WithTimeout(t.Context(), time.Second)
						err = verbs(ctx)[verb]()
						stop()
						if errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), r.says) {
							break
						}
					}
					assert.Greater(t, time.Since(began), 300*time.Millisecond, "%s is repeated for as long as there is time", verb)
					assert.ErrorIs(t, err, store.ErrUnavailable, verb)
					assert.ErrorContains(t, err, r.says, verb)
				})
			}
			asking.Wait()
			for verb, do := range claims {
				assert.ErrorContains(t, do(), r.says, verb)
			}

			for verb, do := range verbs(t.Context()) {
				asking.Go(func() { assert.NoError(t, do(), verb) })
			}
			r.end(t, admin, server)
			asking.Wait()
			for verb, do := range claims { // Those the poller repeats.
				require.Eventually(t, func() bool { return do() == nil }, soon, 10*time.Millisecond, verb)
			}
			state := sound(t, admin, q)
			delete(state.Attempts, "dead") // It has tried before.
			assert.Empty(t, state.Attempts, "no run is a second run")
			assert.Equal(t, int64(1), state.Counter("published"))
		})
	}
}
