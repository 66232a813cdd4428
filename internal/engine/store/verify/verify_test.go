package verify_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/store/verify"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shared is a client of the shared Redis.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	return storetest.Connect(t, testenv.Redis(t))
}

// breaches verifies a queue.
func breaches(t testing.TB, q *store.Queue, mend bool) (found []string) {
	t.Helper()
	require.NoError(t, verify.Run(t.Context(), q, verify.Options{Mend: mend}, func(b verify.Breach) error {
		text := string(b.Kind) + " " + b.Name
		if b.Tag != "" {
			text += " " + b.Tag
		}
		if b.Mended {
			text += ", mended"
		}
		found = append(found, text)
		return nil
	}))
	return found
}

// breakage is one way to break a shard, and what verify makes of it.
type breakage struct {
	name  string
	spoil func(*spoiler)
	want  []string // as it is found; a second look finds the same
	mend  []string // as it is mended, and what stays is found again
	stays []string
	state inspect.State // where message "a" is once it is mended; empty: it is not there
}

type spoiler struct {
	*testing.T
	rdb redis.UniversalClient
	q   *store.Queue
	b   *storetest.Bridge
}

func (s *spoiler) key(name string) string { return storetest.Key(s.q.Name(), 0, name) }

func (s *spoiler) do(args ...any) { require.NoError(s, s.rdb.Do(s.Context(), args...).Err()) }

var breakages = []breakage{
	{"nothing", func(*spoiler) {}, nil, nil, nil, inspect.StateScheduled},
	{
		"a body is lost", func(s *spoiler) { s.do("hdel", s.key("msg"), "a") },
		[]string{"counters ", "no_body a", "stray_tag a x"},
		[]string{"counters ", "no_body a, mended", "stray_tag a x, mended"},
		nil, inspect.StateDead,
	},
	{
		"a place is lost", func(s *spoiler) { s.do("zrem", s.key("due"), "a") },
		[]string{"nowhere a"},
		[]string{"nowhere a, mended"},
		nil, inspect.StateDead,
	},
	{
		"it waits and is in flight", func(s *spoiler) { s.b.Claim(10); s.do("zadd", s.key("due"), 1, "a") },
		[]string{"waits_claimed a"},
		[]string{"waits_claimed a, mended"},
		nil, inspect.StateInFlight,
	},
	{
		"it lost its body in flight", func(s *spoiler) { s.b.Claim(10); s.do("hdel", s.key("msg"), "a") },
		[]string{"counters ", "claimed_no_body a", "stray_tag a x"},
		[]string{"counters ", "claimed_no_body a", "stray_tag a x, mended"},
		[]string{"counters ", "claimed_no_body a"},
		"",
	},
	{"it is in two claims", func(s *spoiler) {
		claim := s.b.Claim(10)
		packed := s.rdb.HGet(s.Context(), s.key("claims"), claim.Token.String()).Val()
		s.do("hset", s.key("claims"), "other|1", packed)
		s.do("zadd", s.key("deadlines"), 1, "other|1")
	}, []string{"claimed_twice a"}, []string{"claimed_twice a"}, []string{"claimed_twice a"}, ""},
	{
		"a claim without a deadline", func(s *spoiler) { token := s.b.Claim(10).Token.String(); s.do("zrem", s.key("deadlines"), token) },
		[]string{"no_deadline bridge|1"},
		[]string{"no_deadline bridge|1, mended"},
		nil, inspect.StateInFlight,
	},
	{
		"a deadline without a claim", func(s *spoiler) { s.do("zadd", s.key("deadlines"), 1, "gone|7") },
		[]string{"no_claim gone|7"},
		[]string{"no_claim gone|7, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"a dead letter is lost", func(s *spoiler) { s.bury(); s.do("hdel", s.key("deadmsg"), "a") },
		[]string{"no_letter a", "stray_tag a x"},
		[]string{"no_letter a, mended", "stray_tag a x, mended"},
		nil, inspect.StateDead,
	},
	{
		"a dead letter is not listed", func(s *spoiler) { s.bury(); s.do("zrem", s.key("dead"), "a") },
		[]string{"counters ", "unlisted_letter a"},
		[]string{"counters ", "unlisted_letter a, mended"},
		nil, inspect.StateDead,
	},
	{
		"it lives and is dead", func(s *spoiler) { s.do("hset", s.key("deadmsg"), "a", "1::1:x"); s.do("zadd", s.key("dead"), 1, "a") },
		[]string{"alive_and_dead a", "counters "},
		[]string{"alive_and_dead a", "counters "},
		[]string{"alive_and_dead a", "counters "},
		inspect.StateScheduled,
	},
	{
		"attempts of nothing", func(s *spoiler) { s.do("hset", s.key("attempts"), "b", "1 1 0 0") },
		[]string{"stray_attempts b"},
		[]string{"stray_attempts b, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"it cannot be read", func(s *spoiler) { s.do("hset", s.key("attempts"), "a", "one") },
		[]string{"unreadable a"},
		[]string{"unreadable a"},
		[]string{"unreadable a"},
		inspect.StateScheduled,
	},
	{
		"a tombstone without an expiry", func(s *spoiler) { s.do("hset", s.key("gone"), "token", "c") },
		[]string{"no_expiry token"},
		[]string{"no_expiry token, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"an expiry without a tombstone", func(s *spoiler) { s.do("zadd", s.key("gonettl"), 1, "token") },
		[]string{"no_tombstone token"},
		[]string{"no_tombstone token, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"a tag is not in the index", func(s *spoiler) { s.do("zrem", s.key("tags"), "x\x00a") },
		[]string{"no_tag a x"},
		[]string{"no_tag a x, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"the index has a tag that it lacks", func(s *spoiler) { s.do("zadd", s.key("tags"), 0, "y\x00a", 0, "y\x00b") },
		[]string{"stray_tag a y", "stray_tag b y"},
		[]string{"stray_tag a y, mended", "stray_tag b y, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"a tag of a dead letter", func(s *spoiler) { s.bury(); s.do("zrem", s.key("tags"), "x\x00a") },
		[]string{"no_tag a x"},
		[]string{"no_tag a x, mended"},
		nil, inspect.StateDead,
	},
	{
		"a counter", func(s *spoiler) { s.do("hincrby", s.key("meta"), "published", 1) },
		[]string{"counters "},
		[]string{"counters "},
		[]string{"counters "},
		inspect.StateScheduled,
	},
	{
		"an end is lost", func(s *spoiler) { s.ends(10, "e", "f"); s.do("hdel", s.key("ends"), "e") },
		[]string{"no_end e"},
		[]string{"no_end e, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"an end is not listed", func(s *spoiler) { s.ends(10, "e", "f"); s.do("zrem", s.key("ended"), "e") },
		[]string{"unlisted_end e"},
		[]string{"unlisted_end e, mended"},
		nil, inspect.StateScheduled,
	},
	{
		"more ends than may be", func(s *spoiler) { s.ends(2, "e", "f"); s.end("oldest", 1) },
		[]string{"many_ends "},
		[]string{"many_ends , mended"},
		nil, inspect.StateScheduled,
	},
	{
		"ends that nobody keeps any more", func(s *spoiler) { s.ends(2, "e", "f"); s.ends(0) },
		[]string{"many_ends "},
		[]string{"many_ends , mended"},
		nil, inspect.StateScheduled,
	},
	{
		"it died, and was put back", func(s *spoiler) { s.ends(2); s.bury(); storetest.Reschedule(s, s.q, "a", storetest.Later()) },
		nil, nil, nil, inspect.StateScheduled,
	},
	{
		"another epoch", func(s *spoiler) { s.do("hset", s.key("meta"), "epoch", "0-0-0") },
		[]string{"lost "},
		[]string{"lost "},
		[]string{"lost "},
		"",
	},
}

func taggedRequest(id, tag string, when store.When) store.Request {
	return store.Request{
		Message: &message.Message{ID: id, Topic: "t", Headers: map[string]string{message.HeaderTags: tag}, Body: []byte(id)}, When: when,
	}
}

// ends has the queue keep a history of so many, and ends messages that it remembers.
func (s *spoiler) ends(most int, ids ...string) {
	storetest.Remember(s, s.q, layout.History{Count: most, Age: storetest.Never})
	for _, id := range ids {
		storetest.Create(s, s.q, id, storetest.Later())
		require.Equal(s, store.Done, storetest.Cancel(s, s.q, id))
	}
}

// end writes an end by hand.
func (s *spoiler) end(id string, atMs int) {
	end := message.End{Kind: message.EndCancelled, Topic: "t", Attempt: 1}
	s.do("zadd", s.key("ended"), atMs, id)
	s.do("hset", s.key("ends"), id, end.String())
}

func (s *spoiler) bury() {
	s.b.Finish(storetest.Buried)
}

// TestVerify breaks a shard in every way that verify knows.
func TestVerify(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	kinds := map[string]bool{}
	for _, br := range breakages {
		q := storetest.New(t, rdb, 1)
		s := &spoiler{T: t, rdb: rdb, q: q, b: storetest.NewBridge(t, q)}
		storetest.Answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{taggedRequest("a", "x", storetest.Past())}, false, store.Durability{})[0])
		br.spoil(s)
		require.ElementsMatch(t, br.want, breaches(t, q, false), br.name)
		require.ElementsMatch(t, br.want, breaches(t, q, false), "%s: to look changes nothing", br.name)
		require.ElementsMatch(t, br.mend, breaches(t, q, true), br.name)
		require.ElementsMatch(t, br.stays, breaches(t, q, true), br.name)
		for _, text := range br.want {
			var kind string
			_, _ = fmt.Sscan(text, &kind)
			kinds[kind] = true
		}
		if br.stays == nil {
			storetest.Sound(t, rdb, q)
		}
		if br.state != "" {
			page, err := inspect.NewAdmin(q).List(t.Context(), inspect.ListRequest{Limit: 10, Filter: inspect.Filter{State: br.state}})
			require.NoError(t, err)
			require.Len(t, page.Messages, 1, br.name)
			require.Equal(t, "a", page.Messages[0].Found.ID)
		}
	}
	require.Len(t, kinds, 21, "all kinds but wrong_home")
}

// TestVerifyTrimsHistory: what is too much goes in steps, and the oldest goes.
func TestVerifyTrimsHistory(t *testing.T) {
	t.Parallel()
	const most, there = 100, 1_700
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	s := &spoiler{T: t, rdb: rdb, q: q}
	s.ends(most)
	for i := range there {
		s.end(fmt.Sprint("e-", i), i+1)
	}
	var found []verify.Breach
	var steps []int64
	options := verify.Options{Mend: true, Progress: func(looked, _ int64) { steps = append(steps, looked) }}
	require.NoError(t, verify.Run(t.Context(), q, options, func(b verify.Breach) error { found = append(found, b); return nil }))
	require.Len(t, found, 1)
	require.True(t, found[0].Mended)
	require.Equal(t, "1700 are remembered, 100 may be", found[0].Detail)
	require.Equal(t, []int64{500, 1000, 1500, 2000}, steps[:4], "a script removes 500 at the most")
	left := storetest.Sound(t, rdb, q).Ends
	require.Len(t, left, most)
	for i := range most {
		require.Contains(t, left, fmt.Sprint("e-", there-1-i))
	}
}

// TestVerifyBuries tells what is known of a message that has lost its place, and that a
// copy may be out.
func TestVerifyBuries(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Create(t, q, "a", storetest.Later())
	require.NoError(t, rdb.ZRem(t.Context(), storetest.Key(q.Name(), 0, "due"), "a").Err())
	require.Equal(t, []string{"nowhere a, mended"}, breaches(t, q, true))
	found, ok, err := inspect.Get(t.Context(), q, "a", "")
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, found.Err)
	require.Equal(t, "a", string(found.Body))
	require.True(t, found.MaybePublished)
	require.Contains(t, found.Reason, "when it was due is lost")
	codes, err := inspect.NewAdmin(q).Redrive(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Equal(t, []store.Code{store.Done}, codes)
	require.Contains(t, storetest.Sound(t, rdb, q).Due, "a")
}

// TestVerifyBesideLoad finds and mends nothing while messages go all ways and are remembered,
// on one server and in a Cluster.
func TestVerifyBesideLoad(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*testing.T) redis.UniversalClient{
		"standalone": func(t *testing.T) redis.UniversalClient { return shared(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: testenv.StartCluster(t).Addrs(), ClusterStateReloadInterval: time.Second,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t)
			const shards = 2
			q := storetest.Remember(t, storetest.New(t, rdb, shards), layout.History{Count: 200, Age: storetest.Never})
			ctx, stop := context.WithCancel(t.Context())
			var working sync.WaitGroup
			for worker := range 3 {
				working.Go(func() { churn(ctx, q, worker) })
			}
			for shard := range shards {
				working.Go(func() { drainShard(ctx, q, shard) })
			}
			for shard := range shards {
				require.Eventually(t, func() bool {
					stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
					return err == nil && stats.Counters["published"] > 0
				}, time.Minute, time.Millisecond)
			}
			for range 6 {
				require.Empty(t, breaches(t, q, true))
			}
			stop()
			working.Wait()
			require.Empty(t, breaches(t, q, true))
			for shard := range shards {
				s, err := storetest.Dump(t.Context(), rdb, q.Name(), shard)
				require.NoError(t, err)
				require.NoError(t, s.Check())
			}
		})
	}
}

// churn schedules, cancels and moves messages until ctx ends.
func churn(ctx context.Context, q *store.Queue, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		var requests []store.Request
		for i := range 50 {
			when := store.When{Relative: true, Ms: int64(i % 3)}
			requests = append(requests, taggedRequest(fmt.Sprintf("%d-%d-%d", worker, n%5, i), fmt.Sprint("t", n%7), when))
		}
		q.Producer().Schedule(context.WithoutCancel(ctx), requests, n%2 == 0, store.Durability{})
		for i := range 10 {
			q.Producer().Cancel(context.WithoutCancel(ctx), requests[i].Message.ID, "", store.Durability{})
			q.Producer().Reschedule(context.WithoutCancel(ctx), requests[20+i].Message.ID, "", storetest.Past(), store.Durability{})
		}
	}
}

// drainShard claims and ends messages in all ways until ctx ends.
func drainShard(ctx context.Context, q *store.Queue, shard int) {
	for number := uint64(1); ctx.Err() == nil; number++ {
		claim, err := q.Shard(shard).Claim(context.WithoutCancel(ctx), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "load", Number: number}, Max: 100, Timeout: time.Minute, Lease: time.Minute,
		})
		if err != nil || len(claim.Messages) == 0 {
			continue
		}
		s := message.Settlement{Claim: claim, Verdicts: make([]message.Verdict, len(claim.Messages))}
		var dead []string
		for i := range s.Verdicts {
			switch i % 5 {
			case 0:
				s.Verdicts[i] = message.Verdict{Verb: message.VerbRelease}
			case 1:
				s.Verdicts[i] = message.Verdict{Verb: message.VerbDeadLetter, Reason: "so"}
				dead = append(dead, claim.Messages[i].Member)
			default:
				s.Verdicts[i] = message.Verdict{Verb: message.VerbAck}
			}
		}
		if _, err := q.Shard(shard).Settle(context.WithoutCancel(ctx), s); err != nil {
			continue
		}
		_, _ = inspect.NewAdmin(q).Redrive(context.WithoutCancel(ctx), dead[:len(dead)/2])
		_, _ = inspect.NewAdmin(q).Purge(context.WithoutCancel(ctx), dead[len(dead)/2:])
	}
}
