package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// The messages of a queue are due at even distances, and the fault is in the middle.
const (
	dueEvery   = 50 * time.Millisecond
	faultAfter = 3 * time.Second
	faultLasts = 6 * time.Second
	dueFor     = faultAfter + faultLasts + 2*time.Second
	// mostLonger is by how much the fault may make others later: far less than it lasts.
	mostLonger = 1500 * time.Millisecond
)

// side is one queue of the bridge whose isolation is looked at.
type side struct {
	t      *testing.T
	name   string
	shards int
	client *delay.Client
	topic  string
	due    map[string]time.Time

	mu      sync.Mutex
	arrived map[string]time.Time
	news    chan struct{} // of 1
}

func newSide(t *testing.T, cfg *config.Config, rdb redis.UniversalClient, name string) *side {
	l := &side{
		t: t, name: name, shards: cfg.Queues[name].Shards, topic: testenv.Name(t, "topic"),
		due: map[string]time.Time{}, arrived: map[string]time.Time{}, news: make(chan struct{}, 1),
	}
	nc, err := nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: l.topic, Subjects: []string{l.topic}})
	require.NoError(t, err)
	_, err = nc.Subscribe(l.topic, l.arrive)
	require.NoError(t, err)
	require.NoError(t, nc.Flush(), "else the first message may come before the subscription")
	l.client, err = delay.NewClient(rdb, name, delay.WithPrefix(cfg.Prefix))
	require.NoError(t, err)
	return l
}

func (l *side) arrive(m *nats.Msg) {
	l.mu.Lock()
	if id := m.Header.Get("delay-id"); l.arrived[id].IsZero() {
		l.arrived[id] = time.Now()
	}
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// came are the messages that have come, and when.
func (l *side) came() map[string]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.arrived)
}

// schedule schedules messages from begin on, once the queue is made.
func (l *side) schedule(begin time.Time, lasts time.Duration) {
	l.t.Helper()
	var requests []delay.Request
	for at := time.Duration(0); at < lasts; at += dueEvery {
		id := fmt.Sprint(l.name, "-", len(l.due))
		l.due[id] = begin.Add(at)
		requests = append(requests, delay.Request{Message: delay.Message{ID: id, Topic: l.topic}, When: delay.At(l.due[id])})
	}
	require.Eventually(l.t, func() bool {
		results, err := l.client.ScheduleBatch(l.t.Context(), requests)
		if err != nil {
			return false
		}
		for _, result := range results {
			if result.Err != nil {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond, l.name)
}

// receive waits until all wanted messages have come.
func (l *side) receive(ctx context.Context, wanted func(id string) bool) {
	l.t.Helper()
	for {
		came, missing := l.came(), []string(nil)
		for id := range l.due {
			if _, there := came[id]; !there && wanted(id) {
				missing = append(missing, id)
			}
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-l.news:
		case <-ctx.Done():
			require.Empty(l.t, missing, "%s: messages have not come", l.name)
		}
	}
}

// latest is the greatest lateness among the wanted messages due in a time.
func (l *side) latest(from, to time.Time, wanted func(id string) bool) (latest time.Duration) {
	for id, came := range l.came() {
		if due := l.due[id]; wanted(id) && !due.Before(from) && due.Before(to) {
			latest = max(latest, came.Sub(due))
		}
	}
	return latest
}

// undelayed checks that the fault has delayed no wanted message.
func (l *side) undelayed(begin time.Time, wanted func(id string) bool) {
	l.t.Helper()
	fault := begin.Add(faultAfter)
	before := l.latest(begin, fault, wanted)
	during := l.latest(fault, fault.Add(faultLasts), wanted)
	l.t.Logf("%s: at most %s late before the fault, %s in it", l.name, before, during)
	assert.Positive(l.t, during, l.name)
	assert.Less(l.t, during, before+mostLonger, l.name)
}

func every(string) bool { return true }

// bridgeFor runs a bridge until the returned function is called, which waits for it.
func bridgeFor(t *testing.T, cfg *config.Config) (stop func()) {
	t.Helper()
	return runBridge(t, cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

func runBridge(t *testing.T, cfg *config.Config, logger *slog.Logger, more ...fx.Option) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, logger, more...) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestHangingSinkDelaysNoOtherQueue lets the broker of one queue go silent.
// It checks I8.
func TestHangingSinkDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(testenv.NATS(t))
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	cfg := parse(t, `
prefix: %s
redis: {url: %q}
queues: {stuck: {shards: 16, sink: hanging}, other: {shards: 4, sink: sound}}
sinks: {hanging: {type: nats, url: "nats://%s"}, sound: {type: nats, url: %q}}
admin: {listen: ""}
drain_timeout: 5s
`, testenv.Name(t, "p"), testenv.Redis(t), proxy.Addr(), testenv.NATS(t))
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	stop := bridgeFor(t, cfg)
	stuck, other := newSide(t, cfg, rdb, "stuck"), newSide(t, cfg, rdb, "other")
	begin := time.Now().Add(3 * time.Second)
	stuck.schedule(begin, dueFor)
	other.schedule(begin, dueFor)
	fault := time.Until(begin.Add(faultAfter))
	defer time.AfterFunc(fault, func() { proxy.Blackhole(true) }).Stop()
	defer time.AfterFunc(fault+faultLasts, func() { proxy.Blackhole(false) }).Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other.receive(ctx, every)
	stuck.receive(ctx, every)
	other.undelayed(begin, every)
	atStart := begin.Add(faultAfter)
	stuckFor := stuck.came()["stuck-"+fmt.Sprint(int((faultAfter+time.Second)/dueEvery))].Sub(atStart)
	assert.Greater(t, stuckFor, faultLasts-time.Second, "else the sink has not hung")
	stop()
}

// clusterSides are queues of a Cluster, of which the first node will hang.
type clusterSides struct {
	t      *testing.T
	c      *testenv.Cluster
	prefix string
	slots  map[string]string // a key's node
}

// lives reports whether the key is on a node that does not hang.
func (c *clusterSides) lives(key string) bool {
	if c.slots[key] == "" {
		c.slots[key] = c.c.PrimaryOf(key).Addr()
	}
	return c.slots[key] != c.c.Nodes()[0].Addr()
}

func (c *clusterSides) shardLives(queue string, shard int) bool {
	return c.lives(fmt.Sprintf("%s:{%s:%d}:meta", c.prefix, queue, shard))
}

// name finds a queue's name by where its first shard and its own two keys live.
func (c *clusterSides) name(begin string, shard, own bool) string {
	for i := range 1000 {
		name := fmt.Sprint(begin, i)
		if c.shardLives(name, 0) == shard && c.lives(c.prefix+":"+name+":layout") == own &&
			c.lives(c.prefix+":"+name+":instances") == own {
			return name
		}
	}
	c.t.Fatal("no such name")
	return ""
}

// sound are the messages in shards that live.
func (c *clusterSides) sound(l *side) func(id string) bool {
	return func(id string) bool { return c.shardLives(l.name, layout.Home("", id, l.shards)) }
}

// know finds where all shards are, while all nodes answer.
func (c *clusterSides) know(l *side) {
	alive := 0
	for shard := range l.shards {
		if c.shardLives(l.name, shard) {
			alive++
		}
	}
	require.True(c.t, l.shards == 1 || alive > 0 && alive < l.shards)
}

// TestHangingNodeDelaysNoOtherShard lets a node of a Cluster go silent, and the
// replica that could follow it. The shards of the others go on, whatever is on
// that node of their own queue, and a bridge that starts meanwhile polls them.
func TestHangingNodeDelaysNoOtherShard(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t, "cluster-require-full-coverage no")
	sides := &clusterSides{t: t, c: c, prefix: testenv.Name(t, "p"), slots: map[string]string{}}
	names := []string{
		sides.name("stuck", false, true), // its shard hangs
		sides.name("torn", true, false),  // its layout and instances do
		sides.name("sound", true, true),
		sides.name("wide", true, true), // some of its shards do
	}
	cfg := parse(t, `
prefix: %s
redis: {mode: cluster, addrs: ["%s"]}
queues: {%s: {shards: 1, sink: events}, %s: {shards: 1, sink: events}, %s: {shards: 1, sink: events}, %s: {shards: 24, sink: events}}
sinks: {events: {type: nats, url: %q}}
admin: {listen: ""}
drain_timeout: 5s
`, sides.prefix, strings.Join(c.Addrs(), `", "`), names[0], names[1], names[2], names[3], testenv.NATS(t))
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	stop := bridgeFor(t, cfg)
	all := make([]*side, len(names))
	for i, name := range names {
		all[i] = newSide(t, cfg, rdb, name)
		sides.know(all[i])
		all[i].schedule(time.Now(), dueEvery)
	}
	begin := time.Now().Add(4 * time.Second)
	for _, l := range all {
		l.schedule(begin, dueFor)
	}
	hanging := []*testenv.Server{c.Nodes()[0], c.Nodes()[3]}
	require.True(t, slices.Contains(c.Addrs(), hanging[1].Addr()))
	hang := func() { hanging[1].Pause(); hanging[0].Pause() }
	resume := func() { hanging[0].Resume(); hanging[1].Resume() }
	fault := time.Until(begin.Add(faultAfter))
	defer time.AfterFunc(fault, hang).Stop()
	defer time.AfterFunc(fault+faultLasts, resume).Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, l := range all[1:] {
		l.receive(ctx, every)
		l.undelayed(begin, sides.sound(l))
	}
	all[0].receive(ctx, every)
	stuck := all[0].latest(begin.Add(faultAfter), begin.Add(faultAfter+faultLasts), every)
	assert.Greater(t, stuck, faultLasts/2, "else the node has not hung")

	// Now a bridge starts while the node hangs.
	stop()
	c.AwaitFailover()
	for _, l := range all {
		l.schedule(time.Now(), time.Second)
	}
	hang()
	stop = bridgeFor(t, cfg)
	soon, cancelSoon := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancelSoon()
	for _, l := range all[2:] {
		l.receive(soon, sides.sound(l))
	}
	resume()
	for _, l := range all {
		l.receive(ctx, every)
	}
	stop()
}
