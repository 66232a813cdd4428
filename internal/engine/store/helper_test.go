package store_test

import (
	"context"
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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
	goleak.VerifyTestMain(m)
}

// Time scales of the tests: what is due is due for long, what is not stays so.
const (
	never = time.Hour
	lease = time.Hour
)

func connect(t testing.TB, url string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	for _, set := range change {
		set(options)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// shared is a client of the shared Redis.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	return connect(t, testenv.Redis(t))
}

func redisNow(ctx context.Context, rdb *redis.Client) (int64, error) {
	now, err := rdb.Time(ctx).Result()
	return now.UnixMilli(), err
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
	s := dump(t, rdb, q)
	require.NoError(t, s.Check())
	return s
}

func note(id, body string) *message.Message {
	return &message.Message{ID: id, Topic: "topic", Headers: map[string]string{"h": "v"}, Body: []byte(body)}
}

func past() store.When { return store.When{Ms: 1_000_000} }

func later() store.When { return store.When{Relative: true, Ms: never.Milliseconds()} }

func schedule(t testing.TB, q *store.Queue, id string, when store.When) store.Answer {
	t.Helper()
	answer := q.Producer().Schedule(t.Context(), []store.Request{{Message: note(id, id), When: when}}, false, store.Durability{})[0]
	require.NoError(t, answer.Err)
	return answer
}

// create schedules a message whose identity is free.
func create(t testing.TB, q *store.Queue, id string, when store.When) {
	t.Helper()
	require.Equal(t, store.Created, schedule(t, q, id, when).Code)
}

func cancel(t testing.TB, q *store.Queue, id string) store.Code {
	t.Helper()
	answer := q.Producer().Cancel(t.Context(), id, "", store.Durability{})
	require.NoError(t, answer.Err)
	return answer.Code
}

func reschedule(t testing.TB, q *store.Queue, id string, when store.When) store.Code {
	t.Helper()
	answer := q.Producer().Reschedule(t.Context(), id, "", when, store.Durability{})
	require.NoError(t, answer.Err)
	return answer.Code
}

// bridge is one instance that claims and settles shard 0.
type bridge struct {
	t      testing.TB
	q      *store.Queue
	name   string
	number uint64
}

func newBridge(t testing.TB, q *store.Queue) *bridge { return &bridge{t: t, q: q, name: "bridge"} }

func (b *bridge) request(most int) message.ClaimRequest {
	b.number++
	return message.ClaimRequest{
		Token: message.ClaimToken{Instance: b.name, Number: b.number}, Max: most, Timeout: never, Lease: lease,
	}
}

// claim takes up to most due messages; it must be granted.
func (b *bridge) claim(most int) message.Claim {
	b.t.Helper()
	claim, err := b.q.Shard(0).Claim(b.t.Context(), b.request(most))
	require.NoError(b.t, err)
	require.Equal(b.t, message.ClaimGranted, claim.State)
	return claim
}

// settle ends the claim with one verdict for all; it must not be stale.
func (b *bridge) settle(claim message.Claim, v message.Verdict) {
	b.t.Helper()
	stale, err := b.q.Shard(0).Settle(b.t.Context(), settlement(claim, v))
	require.NoError(b.t, err)
	require.False(b.t, stale)
}

func settlement(claim message.Claim, v message.Verdict) message.Settlement {
	s := message.Settlement{Claim: claim, Verdicts: make([]message.Verdict, len(claim.Messages))}
	for i := range s.Verdicts {
		s.Verdicts[i] = v
	}
	return s
}

// The verdicts of the tests.
var (
	acked    = message.Verdict{Verb: message.VerbAck, Published: true}
	released = message.Verdict{Verb: message.VerbRelease}
	retried  = message.Verdict{Verb: message.VerbRetry, Delay: never, Attempts: message.Attempts{Failures: 1, Begun: 1}}
	unknown  = message.Verdict{Verb: message.VerbRelease, Published: true, Attempts: message.Attempts{Begun: 1, MaybeOut: 1, Unknowns: 1}}
	parked   = message.Verdict{Verb: message.VerbPark, Slot: 7}
	dropped  = message.Verdict{Verb: message.VerbDrop}
	kept     = message.Verdict{Verb: message.VerbKeep}
	buried   = message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused: too large", Attempts: message.Attempts{Failures: 1, Begun: 1}}
)

// finish claims the one due message and settles it.
func (b *bridge) finish(v message.Verdict) {
	b.t.Helper()
	claim := b.claim(10)
	require.Len(b.t, claim.Messages, 1)
	b.settle(claim, v)
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
