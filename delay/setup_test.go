package delay_test

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) {
	// After some failed dials go-redis' pool looks once a second whether the
	// server is back, and notices only then that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// makeLayout does what a bridge does when it starts.
func makeLayout(ctx context.Context, rdb redis.UniversalClient, prefix string, sink message.SinkType) (*store.Queue, error) {
	queue := store.New(rdb, prefix, "orders")
	_, err := queue.Layouts().Ensure(ctx, store.Layout{Shards: 4, Sink: sink, MaxMessage: message.DefaultMaxSize})
	return queue, err
}

// world is a queue with a layout in a real Redis.
type world struct {
	rdb    *redis.Client
	prefix string
	queue  *store.Queue
}

func newWorld(t testing.TB, sink message.SinkType) world {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	w := world{rdb: redis.NewClient(options), prefix: testenv.Name(t, "sdk")}
	t.Cleanup(func() { assert.NoError(t, w.rdb.Close()) })
	w.queue, err = makeLayout(t.Context(), w.rdb, w.prefix, sink)
	require.NoError(t, err)
	return w
}

func (w world) client(t testing.TB, options ...delay.Option) *delay.Client {
	t.Helper()
	client, err := delay.NewClient(w.rdb, "orders", append([]delay.Option{delay.WithPrefix(w.prefix)}, options...)...)
	require.NoError(t, err)
	return client
}

// exampleRedis stands for your Redis, with the layout that a bridge has made.
// done ends it.
func exampleRedis() (rdb *redis.Client, done func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	if _, err := makeLayout(context.Background(), rdb, "delay", message.NATS); err != nil {
		panic(err)
	}
	return rdb, func() {
		_ = rdb.Close()
		server.Close()
	}
}
