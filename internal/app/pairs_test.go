package app

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// Two mechanisms at once: each holds alone, and the pair must.

// ack is the answer of JetStream that has stored a message.
const ack = `{"stream":"S","seq":1}`

// pair is a bridge of one shard on a Redis of its own, of whose topics some hang.
type pair struct {
	t      *testing.T
	prefix string
	hangs  string // the topics that begin so
	rdb    redis.UniversalClient
	queue  *store.Queue
	client *delay.Client
	nc     *nats.Conn
	js     jetstream.JetStream

	mu       sync.Mutex
	hung     []*nats.Msg
	isHealed bool
}

func newPair(t *testing.T, redisURL, natsURL, ofQueue, ofSink string) *pair {
	t.Helper()
	p := &pair{t: t, prefix: testenv.Name(t, "p"), hangs: testenv.Name(t, "hangs")}
	var err error
	p.nc, err = nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(p.nc.Close)
	p.js, err = jetstream.New(p.nc)
	require.NoError(t, err)
	p.answer(p.hangs+".*", func(m *nats.Msg) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hung = append(p.hung, m); p.isHealed {
			assert.NoError(t, m.Respond([]byte(ack)))
		}
	})
	bridgeFor(t, parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 1, sink: events%s}}\nsinks: {events: {type: nats, url: %q%s}}\npoller: {claim_timeout: 90s}\nadmin: {listen: \"\"}\ndrain_timeout: 5s\n",
		p.prefix, redisURL, ofQueue, natsURL, ofSink))
	t.Cleanup(p.heal) // Else it drains in vain.
	p.rdb, err = parse(t, redisOnly, fmt.Sprintf("{url: %q}", redisURL)).Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.rdb.Close()) })
	p.queue = store.New(p.rdb, p.prefix, "orders")
	p.client, err = delay.NewClient(p.rdb, "orders", delay.WithPrefix(p.prefix))
	require.NoError(t, err)
	p.await("the bridge makes the layout", func() bool {
		_, err := p.queue.Layout(t.Context())
		return err == nil
	})
	return p
}

// answer has what is published to a subject answered so: a NATS server leaves that to
// whoever listens.
func (p *pair) answer(subject string, with func(*nats.Msg)) {
	p.t.Helper()
	_, err := p.nc.Subscribe(subject, with)
	require.NoError(p.t, err)
	require.NoError(p.t, p.nc.Flush())
}

// heal answers all that hangs, and what follows.
func (p *pair) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isHealed = true
	for _, m := range p.hung {
		assert.NoError(p.t, m.Respond([]byte(ack)))
	}
	assert.NoError(p.t, p.nc.Flush())
}

// copies is how often a message was published that hangs.
func (p *pair) copies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.hung)
}

// fill makes a stream that takes nothing more.
func (p *pair) fill(topic string) {
	p.t.Helper()
	_, err := p.js.CreateStream(p.t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	require.NoError(p.t, err)
	_, err = p.js.Publish(p.t.Context(), topic, nil)
	require.NoError(p.t, err)
}

// widen makes a stream that takes all, or has one take it that was full.
func (p *pair) widen(topic string) {
	_, err := p.js.CreateOrUpdateStream(p.t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Discard: jetstream.DiscardNew})
	assert.NoError(p.t, err)
}

// stored are the ids in a stream.
func (p *pair) stored(topic string) (ids []string) {
	stream, err := p.js.Stream(p.t.Context(), topic)
	require.NoError(p.t, err)
	for sequence := uint64(1); sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		m, err := stream.GetMsg(p.t.Context(), sequence)
		require.NoError(p.t, err)
		if id := m.Header.Get("delay-id"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func (p *pair) schedule(requests ...delay.Request) {
	p.t.Helper()
	results, err := p.client.ScheduleBatch(p.t.Context(), requests)
	require.NoError(p.t, err)
	for _, result := range results {
		require.NoError(p.t, result.Err)
	}
}

func (p *pair) stats() inspect.ShardStats {
	p.t.Helper()
	stats, err := inspect.NewAdmin(p.queue).Stats(p.t.Context(), 0)
	require.NoError(p.t, err)
	return stats
}

// scripts is how many its Redis has run.
func (p *pair) scripts() (calls int) {
	p.t.Helper()
	stats, err := p.rdb.InfoMap(p.t.Context(), "commandstats").Result()
	require.NoError(p.t, err)
	_, err = fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%d,", &calls)
	require.NoError(p.t, err)
	return calls
}

func (p *pair) await(what string, is func() bool) {
	p.t.Helper()
	require.Eventually(p.t, is, 25*time.Second, 10*time.Millisecond, what)
}

// backOnce is the case of a message that goes back once, while another of its claim hangs.
type backOnce struct {
	ofQueue string // configuration, of a topic
	// begin has the broker answer the topic; came are the ids that it has taken.
	begin func(p *pair, topic string) (came func() []string)
}

// TestOrderBesideAHang has a message of a Key go back once, while its claim holds another
// that hangs. The Key goes on at once, and the bridge does not turn for its sake.
// It checks I8, I9 and I15.
func TestOrderBesideAHang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]backOnce{
		"full": {begin: func(p *pair, topic string) func() []string {
			p.fill(topic)
			var once sync.Once
			p.answer(topic, func(*nats.Msg) { once.Do(func() { p.widen(topic) }) }) // JetStream has refused it.
			return func() []string { return p.stored(topic) }
		}},
		"unknown": {begin: func(p *pair, topic string) func() []string {
			var mu sync.Mutex
			var ids []string
			var once sync.Once
			p.answer(topic, func(m *nats.Msg) {
				answer := ack
				once.Do(func() { answer = "{}" })
				mu.Lock()
				defer mu.Unlock()
				if assert.NoError(p.t, m.Respond([]byte(answer))) && answer == ack {
					ids = append(ids, m.Header.Get("delay-id"))
				}
			})
			return func() []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(ids)
			}
		}},
		"rate": {", rate: {topics: [%s=10]}", func(p *pair, topic string) func() []string {
			p.widen(topic)
			return func() []string { return p.stored(topic) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := testenv.Name(t, "topic")
			if c.ofQueue != "" {
				c.ofQueue = fmt.Sprintf(c.ofQueue, topic)
			}
			p := newPair(t, testenv.StartRedis(t).URL(), testenv.NATS(t), c.ofQueue, ", publish_timeout: 30s")
			came := c.begin(p, topic)
			due := time.Now().Add(time.Second)
			requests := []delay.Request{{Message: delay.Message{Topic: p.hangs + ".0"}, When: delay.At(due)}}
			var want []string
			for i := range 30 { // Most are due at once, and some later.
				want = append(want, fmt.Sprintf("%03d", i))
				requests = append(requests, delay.Request{
					Message: delay.Message{ID: want[i], Key: "k", Topic: topic}, When: delay.At(due.Add(time.Duration(max(0, i-20)) * 100 * time.Millisecond)),
				})
			}
			p.schedule(requests...)
			began, before := time.Now(), p.scripts()
			assert.Eventually(t, func() bool { return len(came()) >= len(want) }, 25*time.Second, 10*time.Millisecond)
			scripts := p.scripts() - before
			t.Logf("%d of %d messages in %.1f s, %d scripts", len(came()), len(want), time.Since(began).Seconds(), scripts)
			assert.Equal(t, want, came())
			assert.Equal(t, 1, p.copies(), "the other has not been answered yet")
			assert.Less(t, scripts, 1000)
		})
	}
}

// TestManyHangingRoutes has 100 topics of a shard hang at once, and again when they are
// tried again: the one that is well is not late for it. It checks I8 and I9.
func TestManyHangingRoutes(t *testing.T) {
	t.Parallel()
	const hanging, publishTimeout = 100, 10 * time.Second
	p := newPair(t, testenv.StartRedis(t).URL(), testenv.NATS(t), "", fmt.Sprintf(", publish_timeout: %s", publishTimeout))
	well := newSide(t, parse(t, "prefix: %s\nqueues: {orders: {shards: 1, sink: events}}\nsinks: {events: {type: nats, url: \"nats://a\"}}\n", p.prefix), p.rdb, "orders")
	begin := time.Now().Add(time.Second)
	hang := begin.Add(2 * time.Second)
	well.schedule(begin, 28*time.Second)
	var requests []delay.Request
	for i := range 5 * hanging { // Each in a claim of its own, where the machine is quick enough.
		requests = append(requests, delay.Request{
			Message: delay.Message{Topic: fmt.Sprintf("%s.%d", p.hangs, i%hanging)},
			When:    delay.At(hang.Add(time.Duration(i%hanging) * 20 * time.Millisecond)),
		})
	}
	p.schedule(requests...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	well.receive(ctx, every)
	late := 0
	for id, came := range well.came() {
		if came.Sub(well.due[id]) > 2*time.Second {
			late++
		}
	}
	t.Logf("at most %s late before, %s beside %d topics that hang and were published %d times; %d of %d later than two seconds",
		well.latest(begin, hang, every), well.latest(hang, hang.Add(time.Minute), every), hanging, p.copies(), late, len(well.due))
	assert.Greater(t, p.copies(), hanging, "else they were not tried again")
	assert.Less(t, late, len(well.due)/8, "a bound that a slow machine does not reach")
}

// TestReleaseAndAClockSetBack has Redis' clock set back an hour while a message waits
// again that was claimed before. What is parked of a route that is healed then does not
// wait for that hour. It checks I7.
func TestReleaseAndAClockSetBack(t *testing.T) {
	t.Parallel()
	server, clock := testenv.StartRedisWithClock(t)
	address, err := url.Parse(testenv.NATS(t))
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	p := newPair(t, server.URL(), "nats://"+proxy.Addr(), "", "")
	full, back := testenv.Name(t, "full"), testenv.Name(t, "back")
	p.fill(full)
	p.widen(back)
	const parked = 20
	var requests []delay.Request
	for range parked {
		requests = append(requests, delay.Request{Message: delay.Message{Topic: full}, When: delay.After(0)})
	}
	p.schedule(requests...)
	p.await("they are parked", func() bool { return p.stats().Parked == parked })

	clock.Set(time.Hour)
	proxy.Refuse(true)
	proxy.Cut()
	p.schedule(delay.Request{Message: delay.Message{Topic: back}, When: delay.After(0)})
	p.await("it goes back", func() bool { stats := p.stats(); return stats.Counters["released"] > 0 && stats.InFlight == 0 })
	clock.Set(0)
	p.widen(full)
	proxy.Refuse(false)
	began := time.Now()
	assert.Eventually(t, func() bool { return len(p.stored(full)) >= parked }, 25*time.Second, 10*time.Millisecond)
	t.Logf("%d of %d came within %.1f s of the healing", len(p.stored(full)), parked, time.Since(began).Seconds())
	assert.Empty(t, p.stored(back), "by Redis' clock it is due in an hour")
	clock.Set(time.Hour)
	p.await("it is due again", func() bool { return len(p.stored(back)) > 0 })
}
