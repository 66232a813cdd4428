package delay_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// place is a queue of its own, seen from the bridge's side.
type place struct {
	rdb   *redis.Client
	queue *store.Queue
}

// newPlace makes a queue in a real Redis.
func newPlace(t testing.TB, sink message.SinkType) *place {
	t.Helper()
	return placeIn(t, storetest.Connect(t, testenv.Redis(t)), sink)
}

// newFakePlace makes a queue in an in-process Redis.
func newFakePlace(t testing.TB, sink message.SinkType) *place {
	t.Helper()
	return placeIn(t, storetest.Connect(t, "redis://"+miniredis.RunT(t).Addr()), sink)
}

func placeIn(t testing.TB, rdb *redis.Client, sink message.SinkType) *place {
	t.Helper()
	p := &place{rdb: rdb, queue: store.New(rdb, "delay", testenv.Name(t, "q"))}
	_, err := p.queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 1, Sink: sink, MaxMessage: message.DefaultMaxSize})
	require.NoError(t, err)
	return p
}

func (p *place) client(t testing.TB, opts ...delay.Option) *delay.Client {
	t.Helper()
	client, err := delay.NewClient(p.rdb, p.queue.Name(), opts...)
	require.NoError(t, err)
	return client
}

// What the bridge does with a message.
var (
	inFlight = message.Verdict{Verb: -1}
	acked    = message.Verdict{Verb: message.VerbAck, Published: true}
	unknown  = message.Verdict{Verb: message.VerbRelease, Published: true, Attempts: message.Attempts{Begun: 1, MaybeOut: 1}}
	buried   = message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused: too large", Attempts: message.Attempts{Begun: 1}}
)

// finish claims all that is due and settles it with one verdict; inFlight
// leaves it claimed.
func (p *place) finish(t testing.TB, v message.Verdict) {
	t.Helper()
	claims, err := p.rdb.Incr(t.Context(), p.queue.Name()+":claims").Result()
	require.NoError(t, err)
	claim, err := p.queue.Shard(0).Claim(t.Context(), message.ClaimRequest{
		Token: message.ClaimToken{Instance: "bridge", Number: uint64(claims)}, Max: 100,
		Timeout: time.Hour, Lease: time.Hour,
	})
	require.NoError(t, err)
	require.NotEmpty(t, claim.Messages)
	if v.Verb < 0 {
		return
	}
	s := message.Settlement{Claim: claim, Verdicts: make([]message.Verdict, len(claim.Messages))}
	for i := range s.Verdicts {
		s.Verdicts[i] = v
	}
	stale, err := p.queue.Shard(0).Settle(t.Context(), s)
	require.NoError(t, err)
	require.False(t, stale)
}
