package store_test

import (
	"flag"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestMain gives the property tests the same seed each time, unless -rapid.seed
// says otherwise; 0 takes a random one.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"rapid.seed": "1", "rapid.nofailfile": "true", "rapid.checks": "60",
		"test.parallel": "64", // Most of these tests wait most of the time.
	} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	// go-redis asks once a second whether a server is back, and so ends up to a second after Close.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// What the tests of the packages around share, see [storetest].
const (
	never = storetest.Never
	lease = storetest.Lease
)

var (
	connect      = storetest.Connect
	redisNow     = storetest.Now
	remember     = storetest.Remember
	note         = storetest.Note
	tag          = storetest.Tag
	scheduleMany = storetest.ScheduleMany
	at           = storetest.At
	past         = storetest.Past
	later        = storetest.Later
	schedule     = storetest.Schedule
	create       = storetest.Create
	cancel       = storetest.Cancel
	reschedule   = storetest.Reschedule
	answered     = storetest.Answered
	settlement   = storetest.Settlement

	acked, released, retried, unknown = storetest.Acked, storetest.Released, storetest.Retried, storetest.Unknown
	parked, dropped, onceCall, buried = storetest.Parked, storetest.Dropped, storetest.Kept, storetest.Buried
)

// shared is a client of the shared Redis.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	return connect(t, testenv.Redis(t))
}

func dump(t testing.TB, rdb *redis.Client, q *store.Queue) *storetest.Shard {
	t.Helper()
	s, err := storetest.Dump(t.Context(), rdb, q.Name(), 0)
	require.NoError(t, err)
	return s
}

// sound dumps shard 0 and checks I6.
func sound(t testing.TB, rdb *redis.Client, q *store.Queue) *storetest.Shard {
	t.Helper()
	return storetest.Sound(t, rdb, q)
}

// bridge is one instance that claims and settles shard 0.
type bridge struct {
	*storetest.Bridge

	t testing.TB
	q *store.Queue
}

func newBridge(t testing.TB, q *store.Queue) *bridge {
	return &bridge{storetest.NewBridge(t, q), t, q}
}

// another is an instance of that name.
func another(t testing.TB, q *store.Queue, name string) *bridge {
	b := newBridge(t, q)
	b.Instance = name
	return b
}

func (b *bridge) request(most int) message.ClaimRequest         { return b.Request(most) }
func (b *bridge) claim(most int) message.Claim                  { b.Helper(); return b.Claim(most) }
func (b *bridge) settle(claim message.Claim, v message.Verdict) { b.Helper(); b.Settle(claim, v) }
func (b *bridge) finish(v message.Verdict)                      { b.Helper(); b.Finish(v) }
func (b *bridge) claimSlot(slot, most int, free ...int) message.Claim {
	b.Helper()
	return b.ClaimSlot(slot, most, free...)
}

// testenvPrivate is the URL of a Redis of this test's own.
func testenvPrivate(t testing.TB, args ...string) string {
	t.Helper()
	return testenv.StartRedis(t, args...).URL()
}

// commandCalls is how often the server has executed a command.
func commandCalls(t testing.TB, rdb *redis.Client, command string) int64 {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	calls, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.ParseInt(calls, 10, 64)
	return n
}

// scriptCalls is how many scripts the server has executed.
func scriptCalls(t testing.TB, rdb *redis.Client) int64 {
	t.Helper()
	return commandCalls(t, rdb, "evalsha") + commandCalls(t, rdb, "eval")
}

func instancesOf(beats []store.Heartbeat) []string {
	names := make([]string, len(beats))
	for i, beat := range beats {
		names[i] = beat.Instance
	}
	return names
}
