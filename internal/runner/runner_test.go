package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker takes all that is published, but the topic "refused". Where hold is not nil, it
// acknowledges only when that is closed.
type broker struct {
	sinks.Sink

	published chan string // ids
	hold      chan struct{}
}

func (*broker) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (b *broker) Publish(_ context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i := range batch {
		outcome := sinks.Acked()
		if batch[i].Topic == "refused" {
			outcome = sinks.Failed(sinks.Permanent, sinks.ReasonRefused, errors.New("no"))
		}
		b.published <- batch[i].ID
		if b.hold != nil {
			<-b.hold
		}
		outcomes.Report(i, outcome)
	}
}

// process has the queues "orders" and "reminders".
type process struct {
	*runner.Queues

	t       *testing.T
	config  *config.Config
	prefix  string // of all configurations
	rdb     redis.UniversalClient
	metrics *telemetry.Metrics
	logs    *testenv.Log
	// broker is that of the sink "events", other that of "other".
	broker, other *broker
}

// change puts another configuration in force.
func (p *process) change(next *config.Config) {
	p.t.Helper()
	changes, err := p.config.Changes(next)
	require.NoError(p.t, err)
	commit, err := p.Prepare(next, changes)
	require.NoError(p.t, err)
	commit()
	p.config = next
}

// newProcess has more of "orders" in its configuration, and behind it.
func newProcess(t *testing.T, redisURL, orders, more string) *process {
	t.Helper()
	return newProcessOf(t, redisURL, testenv.Name(t, "p"), orders, more)
}

// newProcessOf has a prefix that it may share with others.
func newProcessOf(t *testing.T, redisURL, prefix, orders, more string) *process {
	t.Helper()
	p := &process{
		t: t, prefix: prefix, metrics: telemetry.New("test"), logs: &testenv.Log{},
		broker: &broker{published: make(chan string, 1000)}, other: &broker{published: make(chan string, 1000)},
	}
	p.config = p.parse(redisURL, prefix, orders, "info", more)
	var err error
	p.rdb, err = p.config.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.rdb.Close()) })
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), p.logs), nil))
	traces, err := telemetry.NewTraces(t.Context(), p.metrics, "test", "test", logger)
	require.NoError(t, err)
	p.Queues, err = runner.NewQueues(runner.Config{
		Config: p.config, Instance: message.NewInstance(p.config.Instance), Redis: p.rdb, Sinks: map[string]sinks.Sink{"events": p.broker, "other": p.other},
		Metrics: p.metrics, Traces: traces, Health: &health.Redis{}, Logger: logger, Fatal: func(err error) { assert.NoError(t, err) },
	})
	require.NoError(t, err)
	return p
}

// parse is the configuration with more of "orders".
func (p *process) parse(redisURL, prefix, orders, level string, more ...string) *config.Config {
	p.t.Helper()
	cfg, err := config.Parse([]byte(fmt.Sprintf(`
redis: {url: %q}
prefix: %s
queues: {orders: {sink: events, shards: 2%s}, reminders: {sink: events, shards: 1}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}, other: {type: nats, url: "nats://127.0.0.1:1"}}
log: {level: %s}
drain_timeout: 5s
%s
`, redisURL, prefix, orders, level, strings.Join(more, "\n"))), nil)
	require.NoError(p.t, err)
	return cfg
}

// TestQueues from their start to their drain, with a change of one of them between.
func TestQueues(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t)
	p := newProcess(t, url, "", "")
	before, reminders := p.InForce("orders"), p.InForce("reminders")
	assert.Nil(t, p.InForce("third"))
	stats, err := p.Stats(t.Context())
	require.NoError(t, err)
	assert.Empty(t, stats, "nothing is polled yet")
	p.Start(t.Context())
	publish := func(id string) {
		client, err := delay.NewClient(p.rdb, "orders", delay.WithPrefix(p.config.Prefix))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := client.Schedule(t.Context(), delay.Message{ID: id, Topic: "t"}, delay.After(0))
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		assert.Equal(t, id, <-p.broker.published)
	}
	publish("a")
	require.Eventually(t, func() bool {
		stats, err = p.Stats(t.Context())
		require.NoError(t, err)
		return len(stats) == 3
	}, time.Minute, 10*time.Millisecond, "of each shard")
	require.Eventually(t, func() bool {
		counters, err := p.Counters(t.Context(), []string{"published"})
		require.NoError(t, err)
		sum := int64(0)
		for _, queue := range counters {
			for _, shard := range queue.Shards {
				sum += shard["published"]
			}
		}
		return len(counters) == 2 && sum == 1
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, p.Live())
	assert.False(t, p.IsFailing("events"))

	next := p.parse(url, p.config.Prefix, ", park_patience: 1h, rate: {messages: 1000}", "info")
	p.change(next)
	assert.Equal(t, time.Hour, p.InForce("orders").ParkPatience)
	assert.Equal(t, 24*time.Hour, before.ParkPatience, "who has it goes on with it")
	assert.Same(t, reminders, p.InForce("reminders"), "nothing of it has changed")
	publish("b")
	require.NoError(t, p.Stop(t.Context()))
}

// TestLimits: the budget and the limit of dead letters are those of the configuration.
func TestLimits(t *testing.T) {
	t.Parallel()
	p := newProcess(t, testenv.Redis(t), ", budget: {bytes: 64KiB}, dead: {max: 1}", "")
	p.Start(t.Context())
	client, err := delay.NewClient(p.rdb, "orders", delay.WithPrefix(p.config.Prefix))
	require.NoError(t, err)
	schedule := func(m delay.Message, when delay.When) error {
		_, err := client.Schedule(t.Context(), m, when)
		return err
	}
	for range 3 {
		require.Eventually(t, func() bool { return schedule(delay.Message{Topic: "refused"}, delay.After(0)) == nil }, time.Minute, 10*time.Millisecond)
		<-p.broker.published
	}
	require.Eventually(t, func() bool {
		return errors.Is(schedule(delay.Message{Topic: "t", Body: make([]byte, 4096)}, delay.After(time.Hour)), delay.ErrFull)
	}, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return p.Rooms("orders").Budget != nil }, time.Minute, 10*time.Millisecond)
	assert.Equal(t, int64(64<<10), p.Rooms("orders").Budget.Limit)
	assert.Nil(t, p.Rooms("reminders").Budget)
	dead := inspect.NewAdmin(store.New(p.rdb, p.config.Prefix, "orders"))
	require.Eventually(t, func() bool {
		stats, err := dead.StatsOfAll(t.Context())
		require.NoError(t, err)
		sum := stats.Sum()
		return sum.Dead == 1 && sum.InFlight == 0
	}, time.Minute, 10*time.Millisecond, "two of three are purged")
	require.NoError(t, p.Stop(t.Context()))
}

// TestReloader: what is right is in force as a whole, what is not changes nothing.
func TestReloader(t *testing.T) {
	t.Parallel()
	const url = "redis://127.0.0.1:1"
	p := newProcess(t, url, "", "")
	asked, logs := make(chan os.Signal), &testenv.Log{}
	level := telemetry.NewLevel("info")
	next := make(chan *config.Config, 1)
	guard, err := access.NewGuard(access.Options{})
	require.NoError(t, err)
	r := runner.NewReloader(runner.ReloaderConfig{
		Guard: guard, Requests: asked, Load: func(*config.Config) (*config.Config, error) { return <-next, nil }, Queues: p.Queues, Level: level, Metrics: p.metrics,
		Logger: slog.New(slog.NewTextHandler(logs, nil)),
	}, p.config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	orders := p.InForce("orders")
	for _, cfg := range []*config.Config{
		p.parse(url, "other", ", park_patience: 1h", "debug"),
		p.parse(url, p.config.Prefix, ", park_patience: 2h", "info"),
		p.parse(url, p.config.Prefix, ", park_patience: 2h", "debug"),
	} {
		if cfg.Log.Level == "info" {
			assert.Same(t, orders, p.InForce("orders"), "it needs a restart")
			assert.Equal(t, slog.LevelInfo, level.Level())
		}
		asked <- syscall.SIGHUP
		next <- cfg
	}
	asked <- syscall.SIGHUP // The one before has ended.
	next <- p.parse(url, p.config.Prefix, "", "debug")
	cancel()
	<-ended
	assert.Contains(t, logs.String(), `needs a restart: prefix"`)
	assert.Contains(t, logs.String(), "changed=[queues.orders.park_patience]")
	assert.Contains(t, logs.String(), "changed=[log.level]")
	assert.Equal(t, slog.LevelDebug, level.Level())
	assert.Equal(t, 24*time.Hour, p.InForce("orders").ParkPatience, "and back")
}
