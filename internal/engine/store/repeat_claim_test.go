package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// farClaim claims through the proxy.
func (s *scene) farClaim(r message.ClaimRequest, err *error) func() {
	return func() { _, *err = s.far.Shard(0).Claim(s.Context(), r) }
}

func (s *scene) farSettle(settlement message.Settlement, stale *bool, err *error) func() {
	return func() { *stale, *err = s.far.Shard(0).Settle(s.Context(), settlement) }
}

func (s *scene) farReclaim(instance string, err *error) func() {
	return func() { _, _, *err = s.far.Shard(0).Reclaim(s.Context(), message.Reclaim{Instance: instance}) }
}

func claims(n int) func(*storetest.Shard) bool {
	return func(s *storetest.Shard) bool { return len(s.Claims) == n }
}

// TestClaimRepeated loses the reply of a claim: the same token asks for the
// same batch again.
func TestClaimRepeated(t *testing.T) {
	t.Parallel()
	cases(t, map[string]func(*scene){
		"the same batch": func(s *scene) {
			s.create(past())()
			var err error
			request := s.bridge.request(10)
			s.lost(s.farClaim(request, &err), claims(1), s.nothing)
			require.Error(s, err, "a poller repeats, the store does not")
			create(s, s.near, "y", past())
			again, err := s.near.Shard(0).Claim(s.Context(), request)
			require.NoError(s, err)
			require.Len(s, again.Messages, 1)
			require.Equal(s, "x", again.Messages[0].ID)
			require.Zero(s, again.Messages[0].Attempts, "nothing was published")
			require.Len(s, dump(s, s.rdb, s.near).Claims, 1)
		},
		"late, after its settle": func(s *scene) {
			s.create(past())()
			var err error
			request := s.bridge.request(10)
			s.late(s.farClaim(request, &err), s.nothing, func() {
				claim, err := s.near.Shard(0).Claim(s.Context(), request)
				require.NoError(s, err)
				s.bridge.settle(claim, acked)
				create(s, s.near, "y", past())
			})
			require.Error(s, err)
		},
		"late, after a later one": func(s *scene) {
			s.create(past())()
			var err error
			request := s.bridge.request(10)
			s.late(s.farClaim(request, &err), s.nothing, s.publish)
			require.Error(s, err)
		},
		"late, another holds the shard": func(s *scene) {
			s.create(past())()
			var err error
			s.late(s.farClaim(s.bridge.request(10), &err), s.nothing, func() {
				other := another(s, s.near, "other")
				other.claim(0)
			})
			require.Error(s, err)
		},
	})
}

// TestSettleRepeated loses the reply of a settle, which is then repeated.
func TestSettleRepeated(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]message.Verdict{
		"ack": acked, "retry": retried, "release": released, "dead letter": buried, "unknown": unknown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.create(past())()
			done := settlement(s.bridge.claim(10), verdict)
			var stale bool
			var err error
			s.lost(s.farSettle(done, &stale, &err), claims(0), s.nothing)
			require.Error(s, err)
			want := sound(s, s.rdb, s.near)
			done.Repeated = true
			stale, err = s.near.Shard(0).Settle(s.Context(), done)
			require.NoError(s, err)
			got := sound(s, s.rdb, s.near)
			if verdict.Published && verdict.Verb != message.VerbAck {
				// It lives on and was handed out: marked once more rather than once too few.
				require.True(s, stale)
				return
			}
			require.False(s, stale, "our own doing")
			require.Equal(s, want, got)
		})
	}
}

// TestSettleLate delivers a settle after the same id has begun another life.
// It checks I5.
func TestSettleLate(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*scene){
		"scheduled anew": func(s *scene) { s.create(past())() },
		"in flight anew": func(s *scene) { s.create(past())(); s.claim() },
		"dead anew":      func(s *scene) { s.create(past())(); s.bury() },
		"not there":      (*scene).nothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.create(past())()
			done := settlement(s.bridge.claim(10), acked)
			var stale bool
			var err error
			s.ready()
			s.proxy.Blackhole(true)
			s.farSettle(done, &stale, &err)()
			require.Error(s, err)
			done.Repeated = true
			stale, err = s.near.Shard(0).Settle(s.Context(), done)
			require.NoError(s, err)
			require.False(s, stale)
			again(s)
			want := sound(s, s.rdb, s.near)
			s.deliver()
			got := sound(s, s.rdb, s.near)
			require.EqualValues(s, 1, got.Counter("stale_settles"), "seen")
			delete(got.Meta, "stale_settles")
			require.Equal(s, want, got, "and nothing else has changed")
		})
	}
}

// TestReclaimRepeated loses and delays a reclaim.
func TestReclaimRepeated(t *testing.T) {
	t.Parallel()
	overdue := func(s *scene) {
		s.create(past())()
		request := s.bridge.request(10)
		request.Timeout = 0
		claim, err := s.near.Shard(0).Claim(s.Context(), request)
		require.NoError(s, err)
		require.Len(s, claim.Messages, 1)
	}
	cases(t, map[string]func(*scene){
		"lost": func(s *scene) {
			overdue(s)
			var err error
			s.lost(s.farReclaim(s.bridge.Instance, &err), claims(0), s.nothing)
			require.Error(s, err)
			n, more, err := s.near.Shard(0).Reclaim(s.Context(), message.Reclaim{Instance: s.bridge.Instance})
			require.NoError(s, err)
			require.Zero(s, n)
			require.False(s, more)
			require.Equal(s, markedOnce, dump(s, s.rdb, s.near).Attempts["x"], "marked once")
		},
		"late, claimed again": func(s *scene) {
			overdue(s)
			var err error
			s.late(s.farReclaim(s.bridge.Instance, &err), s.nothing, func() {
				n, _, err := s.near.Shard(0).Reclaim(s.Context(), message.Reclaim{Instance: s.bridge.Instance})
				require.NoError(s, err)
				require.Equal(s, 1, n)
				s.claim()
			})
			require.Error(s, err)
		},
	})
}

// TestSentOnce pins that go-redis resends nothing by itself: what is executed
// are our own runs, though its client would retry three times by default.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	for name, durable := range map[string]store.Durability{
		"single":   {},
		"pipeline": {Replicas: 1, Timeout: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSceneOn(t, testenvPrivate(t))
			require.Equal(t, 3, s.farRdb.Options().MaxRetries, "go-redis' own default")
			s.pipelines()
			before := scriptCalls(t, s.rdb)
			var answer store.Answer
			s.lost(func() { answer = s.far.Producer().Schedule(s.Context(), requests(later(), "x"), false, durable)[0] },
				counted("scheduled", 1), s.nothing)
			answered(t, store.Created, answer)
			runs := int64(2)
			if durable.Replicas > 0 {
				runs += 2 // With what makes the wait count.
			}
			require.Equal(t, before+runs, scriptCalls(t, s.rdb), "two runs, both ours")
			require.Equal(t, durable.Replicas > 0, answer.NotDurable)

			s.proxy.SwallowReplies(false)
			before = scriptCalls(t, s.rdb)
			_, err := s.near.Shard(0).Claim(t.Context(), s.bridge.request(0))
			require.NoError(t, err)
			require.Equal(t, before+1, scriptCalls(t, s.rdb))
		})
	}
}

// TestGhostClaim: a claim and its settle are repeated long after, when the lease
// has lapsed. The repeated claim takes other messages; the repeated settle must
// not end it.
func TestGhostClaim(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t))
	q := storetest.New(t, rdb, 1)
	request := message.ClaimRequest{
		Token: message.ClaimToken{Instance: "a", Number: 1}, Max: 10, Timeout: time.Hour, Lease: time.Hour,
	}
	create(t, q, "first", past())
	claim, err := q.Shard(0).Claim(t.Context(), request)
	require.NoError(t, err)
	settlement := message.Settlement{
		Claim: claim, Verdicts: []message.Verdict{{Verb: message.VerbAck, Published: true}},
	}
	stale, err := q.Shard(0).Settle(t.Context(), settlement)
	require.NoError(t, err)
	require.False(t, stale)
	require.NoError(t, q.Shard(0).HandOver(t.Context(), "a"))

	create(t, q, "second", past())
	ghost, err := q.Shard(0).Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, ghost.Messages, 1)
	stale, err = q.Shard(0).Settle(t.Context(), settlement)
	require.NoError(t, err)
	require.True(t, stale, "it is another claim")
	found, ok, err := inspect.Get(t.Context(), q, "second", "")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, store.InFlight, found.Code)
	sound(t, rdb, q)
}
