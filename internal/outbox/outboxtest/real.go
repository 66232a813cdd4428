package outboxtest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// Real is a scene with a queue of two shards in a real Redis.
type Real struct {
	*Scene
	RDB   *redis.Client
	Store *store.Queue
	Queue outbox.Queue
	claim uint64
}

// Connect is a connection to a Redis.
func Connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// NewReal is a scene with a Redis of its own.
func NewReal(t *testing.T, d *Database) *Real {
	t.Helper()
	return NewRealOn(t, d, Connect(t, testenv.Redis(t)))
}

// NewRealOn is a scene with that Redis.
func NewRealOn(t *testing.T, d *Database, rdb *redis.Client) *Real {
	t.Helper()
	q := storetest.New(t, rdb, 2)
	for shard := range 2 { // It has lost nothing lately.
		require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "born", time.Now().Add(-time.Hour).UnixMilli()).Err())
	}
	s := NewScene(t, d)
	s.Orders = q.Name()
	queue := outbox.Queue{Name: q.Name(), Store: outbox.NewStore(q.Rows()), Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize}
	return &Real{Scene: s, RDB: rdb, Store: q, Queue: queue}
}

// Take claims everything that is due, and leaves it in flight.
func (s *Real) Take() []message.Claim {
	s.t.Helper()
	var claims []message.Claim
	for shard := range 2 {
		s.claim++
		claim, err := s.Store.Shard(shard).Claim(s.t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "poller", Number: s.claim}, Max: 1000, Timeout: time.Minute, Lease: time.Minute,
		})
		require.NoError(s.t, err)
		require.Equal(s.t, message.ClaimGranted, claim.State)
		claims = append(claims, claim)
	}
	return claims
}

// Ack settles claims as published.
func (s *Real) Ack(claims []message.Claim) {
	s.t.Helper()
	for shard, claim := range claims {
		verdicts := make([]message.Verdict, len(claim.Messages))
		for i := range verdicts {
			verdicts[i] = message.Verdict{Verb: message.VerbAck, Published: true}
		}
		if len(verdicts) == 0 {
			continue
		}
		stale, err := s.Store.Shard(shard).Settle(s.t.Context(), message.Settlement{Claim: claim, Verdicts: verdicts})
		require.NoError(s.t, err)
		require.False(s.t, stale)
	}
}

// Publish publishes everything that is due.
func (s *Real) Publish() {
	s.t.Helper()
	s.Ack(s.Take())
}

// Find returns the message in Redis, nil if there is none.
func (s *Real) Find(key, id string) *inspect.Snapshot {
	s.t.Helper()
	found, ok, err := inspect.Get(s.t.Context(), s.Store, id, key)
	require.NoError(s.t, err)
	if !ok {
		return nil
	}
	return &found
}

// Lose is what happens where Redis comes back empty.
func (s *Real) Lose() {
	s.t.Helper()
	storetest.Remove(s.t.Context(), s.RDB, s.Store.Name(), 2)
	_, err := s.Store.Layouts().Ensure(s.t.Context(), storetest.Layout(2))
	require.NoError(s.t, err)
}

// Sound checks the data in Redis.
func (s *Real) Sound() {
	s.t.Helper()
	for shard := range 2 {
		dump, err := storetest.Dump(s.t.Context(), s.RDB, s.Store.Name(), shard)
		require.NoError(s.t, err)
		require.NoError(s.t, dump.Check())
	}
}

// Put writes a row's message as the producer's fast path does.
func (s *Real) Put(number int64) store.Answer {
	s.t.Helper()
	r, _ := s.Read(number)
	require.NotNil(s.t, r)
	return s.put(r)[0]
}

func (s *Real) put(rows ...*table.Row) []store.Answer {
	s.t.Helper()
	puts := make([]store.Row, len(rows))
	for i, r := range rows {
		m := s.MessageOf(r)
		puts[i] = store.Row{Token: r.Token, Message: m, DueAt: m.DueAt}
	}
	return s.Store.Rows().Put(s.t.Context(), puts)
}

// Stored is a row whose message is in Redis.
func (s *Real) Stored(id string, due time.Duration, adjust ...func(*Insert)) int64 {
	s.t.Helper()
	i := Insert{ID: id, Key: "k", DueMs: s.Due(due), State: table.StateStored, Body: "b"}
	for _, f := range adjust {
		f(&i)
	}
	number := s.Insert(i)
	require.Equal(s.t, store.Created, s.Put(number).Code)
	return number
}

// StoreMany is InsertMany, with the messages in Redis.
func (s *Real) StoreMany(n int, due time.Duration) {
	s.t.Helper()
	rows := s.InsertMany(n, due)
	for start := 0; start < n; start += 500 {
		for _, answer := range s.put(rows[start:min(n, start+500)]...) {
			require.Equal(s.t, store.Created, answer.Code, answer.Err)
		}
	}
}
