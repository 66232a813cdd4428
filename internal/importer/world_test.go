package importer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/importer"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// other is a system that messages come from, as its own library has left it in Redis: test/thirdparty runs the same with the
// libraries themselves.
type other interface {
	origin() importer.Origin
	// add adds an item, with further fields.
	add(t *testing.T, id string, due time.Time, body string, more ...field)
	// cancel cancels as the library does, and reports what it says.
	cancel(t *testing.T, id string) error
	// keys are those of the items, and of ours beside them.
	keys(t *testing.T) []string
	has(t *testing.T, id string) bool
}

// field is one more field of an item: of the record of asynq, by number, or of BullMQ's hash.
type field struct {
	number protowire.Number
	name   string
	text   string
}

var errBusy = errors.New("it is being processed")

// asynqWorld has tasks as asynq 0.26.0 writes them.
type asynqWorld struct {
	rdb   *redis.Client
	queue string
}

func (w *asynqWorld) prefix() string { return "asynq:{" + w.queue + "}:" }

func (w *asynqWorld) origin() importer.Origin {
	return importer.Asynq(w.rdb, w.queue, false, maxMessage)
}

func (w *asynqWorld) add(t *testing.T, id string, due time.Time, body string, more ...field) {
	t.Helper()
	record := appendText(nil, 1, "order:timeout")
	record = appendText(record, 2, body)
	record = appendText(record, 3, id)
	record = appendText(record, 4, w.queue)
	record = protowire.AppendVarint(protowire.AppendTag(record, 5, protowire.VarintType), 25)
	record = protowire.AppendVarint(protowire.AppendTag(record, 8, protowire.VarintType), 1800)
	record = appendText(record, 15, string(appendText(appendText(nil, 1, "trace"), 2, "t-"+id)))
	hash := []any{"state", "scheduled"}
	for _, f := range more {
		switch {
		case f.number == 12:
			record = protowire.AppendVarint(protowire.AppendTag(record, f.number, protowire.VarintType), 60)
		case f.number != 0:
			record = appendText(record, f.number, f.text)
		}
		if f.name != "" {
			hash = append(hash, f.name, f.text)
		}
	}
	pipe := w.rdb.TxPipeline()
	pipe.SAdd(t.Context(), "asynq:queues", w.queue)
	pipe.HSet(t.Context(), w.prefix()+"t:"+id, append([]any{"msg", record}, hash...)...)
	pipe.ZAdd(t.Context(), w.prefix()+"scheduled", redis.Z{Score: float64(due.Unix()), Member: id})
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

// cancel does as Inspector.DeleteTask.
func (w *asynqWorld) cancel(t *testing.T, id string) error {
	t.Helper()
	key := w.prefix() + "t:" + id
	state, err := w.rdb.HGet(t.Context(), key, "state").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return delay.ErrNotFound
	case state == "active":
		return errBusy
	}
	require.NoError(t, err)
	removed, err := w.rdb.ZRem(t.Context(), w.prefix()+state, id).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, removed, "asynq's script fails if the set of the state has not the task")
	return w.rdb.Del(t.Context(), key).Err()
}

func (w *asynqWorld) keys(t *testing.T) []string {
	t.Helper()
	keys, err := w.rdb.Keys(t.Context(), w.prefix()+"*").Result()
	require.NoError(t, err)
	return keys
}

func (w *asynqWorld) has(t *testing.T, id string) bool {
	t.Helper()
	return exists(t, w.rdb, w.prefix()+"t:"+id)
}

func exists(t *testing.T, rdb *redis.Client, key string) bool {
	t.Helper()
	n, err := rdb.Exists(t.Context(), key).Result()
	require.NoError(t, err)
	return n > 0
}

// bullWorld has jobs as BullMQ 6.7.0 writes them.
type bullWorld struct {
	rdb   *redis.Client
	queue string
	jobs  int
}

func (w *bullWorld) prefix() string { return "bull:" + w.queue + ":" }

func (w *bullWorld) origin() importer.Origin {
	return importer.BullMQ(w.rdb, "bull", w.queue, maxMessage)
}

func (w *bullWorld) add(t *testing.T, id string, due time.Time, body string, more ...field) {
	t.Helper()
	w.jobs++
	made := time.Now().UnixMilli()
	hash := []any{
		"name", "order:timeout", "data", body, "opts", `{"delay":1,"jobId":"x"}`, "timestamp", made, "delay", due.UnixMilli() - made, "priority", 0,
	}
	for _, f := range more {
		if f.name != "" {
			hash = append(hash, f.name, f.text)
		}
	}
	pipe := w.rdb.TxPipeline()
	pipe.HSet(t.Context(), w.prefix()+"meta", "version", "bullmq:6.7.0", "opts.maxLenEvents", 10000)
	pipe.HSet(t.Context(), w.prefix()+id, hash...)
	pipe.ZAdd(t.Context(), w.prefix()+"delayed", redis.Z{Score: float64(due.UnixMilli()*4096 + int64(w.jobs%4096)), Member: id})
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}

// cancel does as Queue.remove.
func (w *bullWorld) cancel(t *testing.T, id string) error {
	t.Helper()
	key := w.prefix() + id
	switch {
	case exists(t, w.rdb, key+":lock"):
		return errBusy
	case !exists(t, w.rdb, key):
		return delay.ErrNotFound
	}
	require.NoError(t, w.rdb.ZRem(t.Context(), w.prefix()+"delayed", id).Err())
	return w.rdb.Del(t.Context(), key, key+":logs").Err()
}

func (w *bullWorld) keys(t *testing.T) []string {
	t.Helper()
	all, err := w.rdb.Keys(t.Context(), w.prefix()+"*").Result()
	require.NoError(t, err)
	var keys []string
	for _, key := range all {
		if key != w.prefix()+"meta" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (w *bullWorld) has(t *testing.T, id string) bool {
	t.Helper()
	return exists(t, w.rdb, w.prefix()+id)
}

const maxMessage = 4 << 10

// scene is both systems on one Redis.
type scene struct {
	other

	t     *testing.T
	queue *operate.Queue
	rules importer.Rules
	rdb   *redis.Client
}

// inBoth runs a test with either system.
func inBoth(t *testing.T, test func(t *testing.T, s *scene)) {
	t.Parallel()
	for name, open := range map[string]func(rdb *redis.Client, queue string) other{
		"asynq":  func(rdb *redis.Client, queue string) other { return &asynqWorld{rdb: rdb, queue: queue} },
		"bullmq": func(rdb *redis.Client, queue string) other { return &bullWorld{rdb: rdb, queue: queue} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newScene(t, open))
		})
	}
}

func newScene(t *testing.T, open func(rdb *redis.Client, queue string) other) *scene {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	prefix := testenv.Name(t, "p")
	s := &scene{t: t, rdb: rdb, other: open(rdb, testenv.Name(t, "q")), queue: &operate.Queue{
		Name: "orders", Store: store.New(rdb, prefix, "orders"), Clients: map[delay.Conflict]*delay.Client{},
	}}
	require.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", 4, delay.WithPrefix(prefix)))
	for _, conflict := range []delay.Conflict{delay.Reject, delay.Keep} {
		s.queue.Clients[conflict], err = delay.NewClient(rdb, "orders", delay.WithPrefix(prefix), delay.WithConflict(conflict))
		require.NoError(t, err)
	}
	s.rules = importer.Rules{Topics: map[string]string{"order:timeout": "order.timeout"}, Sink: message.NATS, MaxMessage: maxMessage}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, pattern := range []string{prefix + ":*", "asynq:{" + s.name() + "}:*", "bull:" + s.name() + ":*"} {
			keys := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
			for keys.Next(ctx) {
				_ = rdb.Del(ctx, keys.Val()).Err()
			}
		}
		_ = rdb.SRem(ctx, "asynq:queues", s.name()).Err()
	})
	return s
}

// name is that of the other system's queue.
func (s *scene) name() string {
	switch w := s.other.(type) {
	case *asynqWorld:
		return w.queue
	case *bullWorld:
		return w.queue
	}
	return ""
}

var errCrash = errors.New("crash")

// run imports; a step that is named breaks it off.
func (s *scene) run(changes ...func(*importer.Options)) (*importer.Report, error) {
	s.t.Helper()
	o := importer.Options{Queue: s.queue, Origin: s.origin(), Rules: s.rules}
	for _, change := range changes {
		change(&o)
	}
	return importer.New(o).Run(s.t.Context())
}

func (s *scene) ok(changes ...func(*importer.Options)) *importer.Report {
	s.t.Helper()
	r, err := s.run(changes...)
	require.NoError(s.t, err)
	return r
}

// crashAt breaks a run off at the n-th such step.
func crashAt(step string) func(*importer.Options) {
	return func(o *importer.Options) {
		o.Step = func(name string) error {
			if name == step {
				return errCrash
			}
			return nil
		}
	}
}

func (s *scene) get(id string) (delay.Info, error) {
	return s.queue.Client().Get(s.t.Context(), delay.Ref{ID: id})
}

// isHere checks that the message waits here, once, and nothing there.
func (s *scene) isHere(id string, due time.Time) {
	s.t.Helper()
	info, err := s.get(id)
	if assert.NoError(s.t, err, id) {
		assert.Equal(s.t, delay.Scheduled, info.State)
		assert.Equal(s.t, "order.timeout", info.Topic)
		assert.Equal(s.t, due.UnixMilli(), info.DueAt.UnixMilli(), id)
	}
	assert.False(s.t, s.has(s.t, id), "%s is there still", id)
}

// isNowhere checks that it is in neither.
func (s *scene) isNowhere(id string) {
	s.t.Helper()
	_, err := s.get(id)
	assert.ErrorIs(s.t, err, delay.ErrNotFound, id)
	assert.False(s.t, s.has(s.t, id), "%s is there still", id)
}

// isClean checks that neither items nor anything of ours is left there.
func (s *scene) isClean() {
	s.t.Helper()
	assert.Empty(s.t, s.keys(s.t))
}

// counts are the tallies of a report's reasons.
func counts(r *importer.Report) map[importer.Reason]int64 {
	list := map[importer.Reason]int64{}
	for reason, left := range r.Left {
		list[reason] = left.Count
	}
	return list
}

// state is all that Redis has of the other system.
func (s *scene) state() map[string]string {
	s.t.Helper()
	list := map[string]string{}
	for _, key := range s.keys(s.t) {
		var value any
		var err error
		switch s.rdb.Type(s.t.Context(), key).Val() {
		case "hash":
			value, err = s.rdb.HGetAll(s.t.Context(), key).Result()
		case "zset":
			value, err = s.rdb.ZRangeWithScores(s.t.Context(), key, 0, -1).Result()
		default:
			value, err = s.rdb.Get(s.t.Context(), key).Result()
		}
		require.NoError(s.t, err)
		list[key] = fmt.Sprint(value)
	}
	return list
}

func ids(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("order-%d/timeout", i))
	}
	return list
}

func large() string { return `"` + strings.Repeat("x", maxMessage) + `"` }
