package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// realScene is a scene with a queue of two shards in a real Redis.
type realScene struct {
	*scene
	rdb   *redis.Client
	store *store.Queue
	claim uint64
}

func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newReal(t *testing.T, d *Database) *realScene {
	t.Helper()
	return newRealOn(t, d, connect(t, testenv.Redis(t)))
}

func newRealOn(t *testing.T, d *Database, rdb *redis.Client) *realScene {
	t.Helper()
	q := storetest.New(t, rdb, 2)
	for shard := range 2 { // It has lost nothing lately.
		require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "born", time.Now().Add(-time.Hour).UnixMilli()).Err())
	}
	s := newScene(t, d)
	s.config.Queues = []Queue{{Name: q.Name(), Store: NewStore(q.Rows()), Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize}}
	s.config.Clock = q.Clock
	s.orders = q.Name()
	return &realScene{scene: s, rdb: rdb, store: q}
}

// take claims everything that is due, and leaves it in flight.
func (s *realScene) take() []message.Claim {
	s.t.Helper()
	var claims []message.Claim
	for shard := range 2 {
		s.claim++
		claim, err := s.store.Shard(shard).Claim(s.t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "poller", Number: s.claim}, Max: 1000, Timeout: time.Minute, Lease: time.Minute,
		})
		require.NoError(s.t, err)
		require.Equal(s.t, message.ClaimGranted, claim.State)
		claims = append(claims, claim)
	}
	return claims
}

func (s *realScene) ack(claims []message.Claim) {
	s.t.Helper()
	for shard, claim := range claims {
		verdicts := make([]message.Verdict, len(claim.Messages))
		for i := range verdicts {
			verdicts[i] = message.Verdict{Verb: message.VerbAck, Published: true}
		}
		if len(verdicts) == 0 {
			continue
		}
		stale, err := s.store.Shard(shard).Settle(s.t.Context(), message.Settlement{Claim: claim, Verdicts: verdicts})
		require.NoError(s.t, err)
		require.False(s.t, stale)
	}
}

// find returns the message in Redis, nil if there is none.
func (s *realScene) find(key, id string) *store.Found {
	s.t.Helper()
	found, ok, err := s.store.Producer().Get(s.t.Context(), id, key)
	require.NoError(s.t, err)
	if !ok {
		return nil
	}
	return &found
}

// lose is what happens where Redis comes back empty.
func (s *realScene) lose() {
	s.t.Helper()
	storetest.Remove(s.t.Context(), s.rdb, s.store.Name(), 2)
	_, err := s.store.Layouts().Ensure(s.t.Context(), storetest.Layout(2))
	require.NoError(s.t, err)
}

func (s *realScene) sound() {
	s.t.Helper()
	for shard := range 2 {
		dump, err := storetest.Dump(s.t.Context(), s.rdb, s.store.Name(), shard)
		require.NoError(s.t, err)
		require.NoError(s.t, dump.Check())
	}
}

// put writes a row's message as the producer's fast path does.
func (s *realScene) put(number int64) store.Answer {
	s.t.Helper()
	r, _ := s.read(number)
	require.NotNil(s.t, r)
	m, err := r.message(&s.config.Queues[0])
	require.NoError(s.t, err)
	return s.store.Rows().Put(s.t.Context(), []store.Row{{Token: r.token, Message: m, DueAt: m.DueAt}})[0]
}

// drained waits until no operation is pending.
func (s *scene) drained() {
	s.t.Helper()
	s.eventually("operations are done", func() bool { return s.count("op > 0 AND status = 0") == 0 })
}

const (
	past = -time.Second
	far  = 3 * time.Hour
)

// begin is a transaction of a producer.
func (s *scene) begin() (tx querier, commit func()) {
	s.t.Helper()
	t, err := s.db.begin(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = t.Rollback() })
	return t, func() { require.NoError(s.t, t.Commit()) }
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	t.Cleanup(cancel)
	return ctx
}
