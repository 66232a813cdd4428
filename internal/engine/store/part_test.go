package store_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

func redisZ(member string, score int64) redis.Z {
	return redis.Z{Member: member, Score: float64(score)}
}

// rest is the claim without the messages that have been settled.
func rest(s message.Settlement) message.Claim {
	claim := s.Claim
	claim.Messages = nil
	for i, v := range s.Verdicts {
		if v.Verb == message.VerbKeep {
			claim.Messages = append(claim.Messages, s.Claim.Messages[i])
		}
	}
	return claim
}

// TestPartialSettle settles a claim in parts, each of which may be repeated.
func TestPartialSettle(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	for i := range 4 {
		create(t, q, fmt.Sprint(i), at(int64(i)))
	}
	whole := b.claim(10)
	_, err := q.Shard(0).Settle(t.Context(), settlement(whole, onceCall))
	require.NoError(t, err, "nothing is settled")
	first := b.verdicts(whole, onceCall, acked, unknown, onceCall)
	s := sound(t, rdb, q)
	require.Equal(t, "1:0:01:3:3", s.Claims[whole.Token.String()])
	require.EqualValues(t, 1, s.Counter("published"))

	repeated := first
	repeated.Repeated = true
	stale, err := q.Shard(0).Settle(t.Context(), repeated)
	require.NoError(t, err)
	require.False(t, stale, "its first run has done it")
	require.Equal(t, s, sound(t, rdb, q))
	stale, err = q.Shard(0).Settle(t.Context(), first)
	require.NoError(t, err)
	require.True(t, stale, "a late first run changes nothing, but marks what lives on")
	s.Meta["stale_settles"], s.Attempts["2"] = "1", "0 1 2 1"
	require.Equal(t, s, sound(t, rdb, q))

	again, err := q.Shard(0).Claim(t.Context(), message.ClaimRequest{Token: whole.Token, Max: 10, Timeout: never, Lease: lease})
	require.NoError(t, err)
	require.Equal(t, []string{"0", "3"}, ids(again), "what is left of it")
	b.verdicts(rest(first), acked, acked)
	s = sound(t, rdb, q)
	require.Empty(t, s.Claims)
	b.settle(b.claim(1), acked)
	stale, err = q.Shard(0).Settle(t.Context(), repeated)
	require.NoError(t, err)
	require.False(t, stale, "nothing of it lives on")
}

// TestStrays are own claims that the caller does not know.
func TestStrays(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	for i := range 3 {
		create(t, q, fmt.Sprint(i), at(int64(i)))
	}
	known, stray := b.claim(1), b.claim(1)
	r := b.request(1)
	r.Live = []message.ClaimToken{known.Token}
	claim, err := q.Shard(0).Claim(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []message.ClaimToken{stray.Token}, claim.Strays)

	for _, other := range []message.Reclaim{
		{Instance: "other", Stray: stray.Token}, {Instance: b.Instance, Stray: message.ClaimToken{Instance: "other", Number: 1}},
	} {
		n, _, err := q.Shard(0).Reclaim(t.Context(), other)
		require.NoError(t, err)
		require.Zero(t, n)
	}
	require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), 0, "claims"), "other|1", "1:0:9").Err())
	n, more, err := q.Shard(0).Reclaim(t.Context(), message.Reclaim{Instance: b.Instance, Stray: message.ClaimToken{Instance: "other", Number: 1}})
	require.NoError(t, err)
	require.Zero(t, n, "not its own")
	require.False(t, more)
	require.NoError(t, rdb.HDel(t.Context(), storetest.Key(q.Name(), 0, "claims"), "other|1").Err())

	n, _, err = q.Shard(0).Reclaim(t.Context(), message.Reclaim{Instance: b.Instance, Stray: stray.Token})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s := sound(t, rdb, q)
	require.Len(t, s.Claims, 2, "the others live on")
	require.Equal(t, map[string]string{"1": markedOnce}, s.Attempts)
}

// TestSeize takes a shard whose lease does not end by Redis' clock.
func TestSeize(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "x", past())
	b.Instance = message.NewInstance("pod-0.eu:1")
	b.claim(1)
	next := another(t, q, message.NewInstance("pod-0.eu:1"))
	require.NotEqual(t, b.Instance, next.Instance)
	ask := func(seize string) message.Claim {
		r := next.request(1)
		r.Seize = seize
		claim, err := q.Shard(0).Claim(t.Context(), r)
		require.NoError(t, err)
		return claim
	}
	held := ask("")
	require.Equal(t, message.ClaimHeld, held.State)
	require.NotEmpty(t, held.Holder)
	require.Equal(t, held.Holder, ask("").Holder, "silent")
	s := dump(t, rdb, q)
	for now := held.Now.UnixMilli(); now <= held.Now.UnixMilli()+1; { // It has a new lease in another millisecond.
		now = must(redisNow(t.Context(), rdb))
	}
	again := message.ClaimRequest{Token: message.ClaimToken{Instance: b.Instance, Number: b.Number}, Timeout: never, Lease: lease}
	_, err := q.Shard(0).Claim(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, s.Holder, dump(t, rdb, q).Holder)
	renewed := ask(held.Holder)
	require.Equal(t, message.ClaimHeld, renewed.State, "it was renewed meanwhile")
	require.NotEqual(t, held.Holder, renewed.Holder)
	require.Equal(t, message.ClaimReclaimFirst, ask(renewed.Holder).State)
	for more := true; more; {
		_, more, err = q.Shard(0).Reclaim(t.Context(), message.Reclaim{Instance: next.Instance, Foreign: true})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"x"}, ids(ask("")))
	_, err = q.Shard(0).Claim(t.Context(), again)
	require.NoError(t, err)
	stats, err := inspect.NewAdmin(q).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, next.Instance, stats.Holder)
}

// TestHeartbeatForgets what was silent for long, or is ahead of a clock that was
// set back; else the caller decides who lives.
func TestHeartbeatForgets(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	now := must(redisNow(t.Context(), rdb))
	key := storetest.Prefix + ":" + q.Name() + ":instances"
	minute := int64(60_000)
	for name, at := range map[string]int64{
		"quiet/1": now - minute/2, "gone/1": now - 2*minute, "ahead/1": now + minute/2, "far/1": now + 2*minute,
	} {
		require.NoError(t, rdb.ZAdd(t.Context(), key, redisZ(name, at)).Err())
	}
	beats, _, err := q.Members().Heartbeat(t.Context(), "me/1", never/60)
	require.NoError(t, err)
	require.Equal(t, []string{"ahead/1", "me/1", "quiet/1"}, instancesOf(beats))
	require.Equal(t, []store.Heartbeat{{Instance: "ahead/1", At: now + minute/2}, {Instance: "quiet/1", At: now - minute/2}},
		[]store.Heartbeat{beats[0], beats[2]})
	require.GreaterOrEqual(t, beats[1].At, now)
}

// TestManyDeadLetters go in parts: wherever an earlier run has stopped, the next
// one goes on.
func TestManyDeadLetters(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	list := make([]store.Request, store.MaxBatch)
	for i := range list {
		list[i] = store.Request{Message: note(fmt.Sprintf("%04d", i), "x"), When: past()}
	}
	q.Producer().Schedule(t.Context(), list, false, store.Durability{})
	s := settlement(b.claim(store.MaxBatch), buried)
	s.Verdicts[1], s.Verdicts[498], s.Verdicts[499] = acked, unknown, onceCall
	s.Repeated = true
	parts := store.Parts(s, false)
	require.Len(t, parts, 5)
	for _, part := range parts[:2] { // An earlier run got so far.
		b.verdicts(part.Claim, part.Verdicts...)
	}
	stale, err := q.Shard(0).Settle(t.Context(), s)
	require.NoError(t, err)
	require.False(t, stale)
	state := sound(t, rdb, q)
	require.Len(t, state.Dead, 497)
	require.Len(t, state.Claims, 1)
	require.Zero(t, state.Counter("stale_settles"))
	require.Equal(t, "0 1 1 1", state.Attempts["0498"])
	stale, err = q.Shard(0).Settle(t.Context(), s)
	require.NoError(t, err)
	require.False(t, stale)
	require.Equal(t, state, sound(t, rdb, q))
}
