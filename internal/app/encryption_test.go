package app

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// hidden begins every body; it may be found nowhere.
const hidden = "HIDDEN-5d0c1b6e9a"

var (
	keyOne = "one " + strings.Repeat("1d", 32) + "\n"
	keyTwo = "two " + strings.Repeat("2e", 32) + "\n"
)

// sealedWorld is a bridge with keys, and what its consumers get.
type sealedWorld struct {
	*databaseFirst
	rdb  redis.UniversalClient
	file string // of the keys

	mu       sync.Mutex
	arrived  map[string]string // bodies
	problems []string
}

func newSealedWorld(t *testing.T, parkPatience time.Duration) *sealedWorld {
	t.Helper()
	s := &sealedWorld{
		databaseFirst: newDatabaseFirst(t, schema.Postgres, testenv.Postgres(t), ""),
		file:          filepath.Join(t.TempDir(), "keys"), arrived: map[string]string{},
	}
	s.write(keyOne)
	s.config.Encryption.Keys = s.file
	orders := s.config.Queues["orders"]
	orders.ParkPatience = parkPatience
	s.config.Queues["orders"] = orders
	var err error
	s.rdb, err = s.config.Redis.Open("producer")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.rdb.Close()) })
	_, err = s.nc.Subscribe(s.topic, s.consume)
	require.NoError(t, err)
	s.migrate()
	s.start()
	client := s.client(s.rdb)
	s.eventually("the layout is there", func() bool {
		_, err := client.Get(t.Context(), delay.Ref{ID: "nobody's"})
		return errors.Is(err, delay.ErrNotFound)
	})
	return s
}

func (s *sealedWorld) write(keys string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.file, []byte(keys), 0o600))
}

// consume is a consumer that knows nothing of encryption.
func (s *sealedWorld) consume(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := m.Header.Get("delay-id")
	if _, twice := s.arrived[id]; twice {
		s.problems = append(s.problems, id+" came twice")
	}
	if m.Header.Get("own") != "header" || len(m.Header.Values(message.HeaderSealed)) > 0 {
		s.problems = append(s.problems, fmt.Sprint(id, " has the headers ", m.Header))
	}
	s.arrived[id] = string(m.Data)
}

// reads waits until a consumer has read the body of a message as it was scheduled.
func (s *sealedWorld) reads(id string) {
	s.Helper()
	s.eventually(id+" arrives", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, has := s.arrived[id]
		return has
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(s, hidden+id, s.arrived[id])
	assert.Empty(s, s.problems)
}

func (s *sealedWorld) ring(keys string) *delay.Keyring {
	s.Helper()
	ring, err := delay.ParseKeyring([]byte(keys))
	require.NoError(s, err)
	return ring
}

func (s *sealedWorld) client(rdb redis.UniversalClient, options ...delay.Option) *delay.Client {
	s.Helper()
	client, err := delay.NewClient(rdb, "orders", append([]delay.Option{delay.WithPrefix(s.config.Prefix)}, options...)...)
	require.NoError(s, err)
	return client
}

func (s *sealedWorld) message(id string) delay.Message {
	return delay.Message{
		ID: id, Topic: s.topic, Headers: map[string]string{"own": "header"}, Body: []byte(hidden + id), Tags: []string{"vip"},
	}
}

// inRedis is all that Redis has of the bridge.
func (s *sealedWorld) inRedis() string {
	s.Helper()
	var all strings.Builder
	ctx := s.Context()
	keys := s.rdb.Scan(ctx, 0, s.config.Prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		kind, err := s.rdb.Type(ctx, key).Result()
		require.NoError(s, err)
		var value any
		switch kind {
		case "string":
			value, err = s.rdb.Get(ctx, key).Result()
		case "hash":
			value, err = s.rdb.HGetAll(ctx, key).Result()
		case "zset":
			value, err = s.rdb.ZRange(ctx, key, 0, -1).Result()
		case "stream":
			value, err = s.rdb.XRange(ctx, key, "-", "+").Result()
		case "none":
		default:
			require.Fail(s, "unknown type", "%s is a %s", key, kind)
		}
		if !errors.Is(err, redis.Nil) { // It has gone since.
			require.NoError(s, err)
		}
		_, _ = fmt.Fprintln(&all, key, value)
	}
	require.NoError(s, keys.Err())
	return all.String()
}

// inRows is all that the table has; bytes are in hexadecimal.
func (s *sealedWorld) inRows() (all string) {
	s.Helper()
	require.NoError(s, s.db.QueryRowContext(s.Context(), "SELECT coalesce(string_agg(o::text, ''), '') FROM "+schema.DefaultTable+" o").Scan(&all))
	return all
}

func isClear(text string) bool {
	return strings.Contains(text, hidden) || strings.Contains(text, hex.EncodeToString([]byte(hidden)))
}

// post calls the API.
func (s *sealedWorld) post(path string, body any) {
	s.Helper()
	encoded, err := json.Marshal(body)
	require.NoError(s, err)
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+s.config.Admin.Listen+"/api/v1"+path, bytes.NewReader(encoded))
	require.NoError(s, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(s, err)
	_ = response.Body.Close()
	require.Equal(s, http.StatusCreated, response.StatusCode)
}

// scheduleAll schedules in every way there is, and returns what is in Redis then.
func (s *sealedWorld) scheduleAll(ring *delay.Keyring) (ids []string) {
	s.Helper()
	ctx, sealing := s.Context(), delay.WithEncryption(ring)
	client, hour := s.client(s.rdb, sealing), delay.After(time.Hour/2)
	_, err := client.Schedule(ctx, s.message("single"), hour)
	require.NoError(s, err)
	_, err = client.ScheduleBatch(ctx, []delay.Request{{Message: s.message("batch-1"), When: hour}, {Message: s.message("batch-2"), When: hour}})
	require.NoError(s, err)
	result, err := s.client(s.rdb, sealing, delay.WithConflict(delay.Replace)).Schedule(ctx, s.message("batch-2"), hour)
	require.NoError(s, err)
	require.Equal(s, delay.Replaced, result.Status)

	s.post("/queues/orders/messages", map[string]any{
		"id": "api", "topic": s.topic, "headers": map[string]string{"own": "header"}, "body": hidden + "api", "in": "30m",
	})

	var told []byte
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { assert.NoError(s, nowhere.Close()) }()
	compensating := s.client(nowhere, sealing, delay.WithTimeout(5*time.Second), delay.WithCompensationTopic(s.topic+"-c"),
		delay.WithCompensation(func(ctx context.Context, topic string, _ map[string]string, body []byte) error {
			told = body
			_, err := s.js.Publish(ctx, topic, body)
			return err
		}))
	s.eventually("the bridge has made the topic", func() bool {
		result, err := compensating.Schedule(ctx, s.message("compensated"), hour)
		return err == nil && result.Status == delay.Compensated
	})
	require.Contains(s, string(told), `"id":"compensated"`)
	assert.False(s, isClear(string(told)), "%s", told)

	box := outbox.New(outbox.PostgreSQL, outbox.WithRedis(s.rdb, s.config.Prefix), outbox.WithEncryption(ring))
	tx, err := s.db.BeginTx(ctx, nil)
	require.NoError(s, err)
	tracked := box.Track(tx)
	_, err = box.Schedule(ctx, tracked, "orders", s.message("pushed"), hour)
	require.NoError(s, err)
	require.NoError(s, tx.Commit())
	require.NoError(s, tracked.Push(ctx))
	s.commit(func(tx *sql.Tx) {
		_, err := box.Schedule(ctx, tx, "orders", s.message("row"), hour)
		require.NoError(s, err)
		_, err = box.Schedule(ctx, tx, "orders", s.message("far row"), delay.After(5*time.Hour))
		require.NoError(s, err)
	})
	return []string{"single", "batch-1", "batch-2", "api", "compensated", "pushed", "row"}
}

// TestNothingIsClear schedules in every way, and finds no clear body in Redis and in the
// table, neither before nor after the messages were published. Consumers read them.
func TestNothingIsClear(t *testing.T) {
	t.Parallel()
	s := newSealedWorld(t, time.Hour)
	ring := s.ring(keyOne)
	client, without := s.client(s.rdb, delay.WithEncryption(ring)), s.client(s.rdb)
	ids := s.scheduleAll(ring)
	swapped := []string{"swap-a", "swap-b"}
	for _, id := range swapped {
		m := s.message(id)
		m.Key = "one shard"
		_, err := client.Schedule(t.Context(), m, delay.After(time.Hour))
		require.NoError(t, err)
	}
	for _, id := range ids {
		s.eventually(id+" is in redis", func() bool {
			info, err := client.Get(t.Context(), delay.Ref{ID: id})
			return err == nil && string(info.Body) == hidden+id && info.BodyErr == nil && len(info.Headers) == 1
		})
	}
	info, err := without.Get(t.Context(), delay.Ref{ID: "single"})
	require.NoError(t, err)
	require.EqualError(t, info.BodyErr, `sealed: unknown key "one"`)
	assert.Nil(t, info.Body)
	assert.Equal(t, map[string]string{"own": "header"}, info.Headers)
	shown := s.page("/api/v1/queues/orders/messages/single?body=1")
	assert.Contains(t, shown, `"delay-sealed":"one"`)
	assert.NotContains(t, shown, `"body`)

	rows := s.inRows()
	require.Contains(t, rows, "far row")
	assert.False(t, isClear(s.inRedis()), "redis")
	assert.False(t, isClear(rows), "table")
	_, err = without.Schedule(t.Context(), s.message("clear"), delay.After(time.Hour))
	require.NoError(t, err)
	require.True(t, isClear(s.inRedis()), "a clear one is found")
	require.NoError(t, without.Cancel(t.Context(), delay.Ref{ID: "clear"}))

	s.swapBodies(swapped)
	for _, id := range ids {
		require.NoError(t, client.PublishNow(t.Context(), delay.Ref{ID: id}), id)
	}
	for _, id := range swapped {
		require.NoError(t, client.PublishNow(t.Context(), delay.Ref{ID: id, Key: "one shard"}), id)
	}
	s.commit(func(tx *sql.Tx) {
		require.NoError(t, s.box.Reschedule(t.Context(), tx, "orders", delay.Ref{ID: "far row"}, delay.After(0)))
	})
	for _, id := range append(ids, "far row") {
		s.reads(id)
	}
	var dead []string
	s.eventually("the swapped ones are dead letters", func() bool {
		dead = nil
		require.NoError(t, inspect.NewAdmin(store.New(s.rdb, s.config.Prefix, "orders")).DeadLetters(t.Context(), func(letter message.DeadLetter) bool {
			dead = append(dead, letter.ID+": "+letter.Reason)
			return true
		}))
		return len(dead) == 2
	})
	slices.Sort(dead)
	assert.Equal(t, []string{
		`swap-a: permanent broken_seal: sealed: broken seal of key "one"`, `swap-b: permanent broken_seal: sealed: broken seal of key "one"`,
	}, dead)
	assert.False(t, isClear(s.inRedis()), "redis, afterwards")
	assert.False(t, isClear(s.inRows()), "table, afterwards")
	s.stop()
	assert.Empty(t, s.logs.of(hidden))
	assert.Empty(t, s.logs.of(strings.Repeat("1d", 8)))
}

// swapBodies exchanges the bodies of two messages of one shard, as only who may write to
// Redis can.
func (s *sealedWorld) swapBodies(ids []string) {
	s.Helper()
	size := len(hidden) + len(ids[0]) + 41
	for _, shard := range store.New(s.rdb, s.config.Prefix, "orders").Keys().Shards(2) {
		members := []string{message.Member(ids[0], "one shard"), message.Member(ids[1], "one shard")}
		stored, err := s.rdb.HMGet(s.Context(), shard.Msg, members...).Result()
		require.NoError(s, err)
		if stored[0] == nil {
			continue
		}
		a, b := stored[0].(string), stored[1].(string)
		require.NoError(s, s.rdb.HSet(s.Context(), shard.Msg,
			members[0], a[:len(a)-size]+b[len(b)-size:], members[1], b[:len(b)-size]+a[len(a)-size:]).Err())
		return
	}
	require.Fail(s, "they are in no shard")
}

// TestKeysChangeWithoutARestart: what is sealed with a key that the bridge does not have
// waits for it and keeps nobody else; then it becomes the key that seals.
func TestKeysChangeWithoutARestart(t *testing.T) {
	t.Parallel()
	s := newSealedWorld(t, time.Hour)
	one, two := s.client(s.rdb, delay.WithEncryption(s.ring(keyOne))), s.client(s.rdb, delay.WithEncryption(s.ring(keyTwo+keyOne)))
	_, err := two.Schedule(t.Context(), s.message("early"), delay.After(0))
	require.NoError(t, err)
	s.eventually("it is parked", func() bool { return len(s.logs.of("route=key two")) > 0 })
	_, err = one.Schedule(t.Context(), s.message("other"), delay.After(0))
	require.NoError(t, err)
	s.reads("other")

	s.write(keyOne + keyTwo)
	s.reads("early")
	s.write(keyTwo + keyOne)
	n := 0
	s.eventually("the new key seals", func() bool {
		n++
		id := fmt.Sprint("api-", n)
		s.post("/queues/orders/messages", map[string]any{"id": id, "topic": s.topic, "body": "x", "in": "1h"})
		return strings.Contains(s.page("/api/v1/queues/orders/messages/"+id), `"delay-sealed":"two"`)
	})
	_, err = one.Schedule(t.Context(), s.message("late"), delay.After(0))
	require.NoError(t, err)
	s.reads("late")
	assert.NotEmpty(t, s.logs.of("keys read again"))
}

// TestClearMessages of producers that do not encrypt are published as they are.
func TestClearMessages(t *testing.T) {
	t.Parallel()
	s := newSealedWorld(t, time.Hour)
	_, err := s.client(s.rdb).Schedule(t.Context(), s.message("clear"), delay.After(0))
	require.NoError(t, err)
	s.commit(func(tx *sql.Tx) {
		_, err := s.box.Schedule(t.Context(), tx, "orders", s.message("clear row"), delay.After(0))
		require.NoError(t, err)
	})
	s.reads("clear")
	s.reads("clear row")
}

// TestDeadForAnUnknownKey: what has waited too long for its key is a dead letter, and is
// published when it is put back and the key is there.
func TestDeadForAnUnknownKey(t *testing.T) {
	t.Parallel()
	s := newSealedWorld(t, 3*time.Second)
	client, ref := s.client(s.rdb, delay.WithEncryption(s.ring(keyTwo))), delay.Ref{ID: "patient"}
	_, err := client.Schedule(t.Context(), s.message(ref.ID), delay.After(0))
	require.NoError(t, err)
	var info delay.Info
	s.eventually("it is a dead letter", func() bool {
		info, err = client.Get(t.Context(), ref)
		return err == nil && info.State == delay.Dead
	})
	assert.Contains(t, info.Reason, `sealed: unknown key "two"`)
	assert.Equal(t, hidden+ref.ID, string(info.Body))

	s.write(keyOne + keyTwo)
	require.NoError(t, client.PublishNow(t.Context(), ref))
	s.reads(ref.ID)
}
