package store_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// soon bounds how long a test waits for something that must happen.
const soon = 20 * time.Second

// scene is a queue with two producers: far speaks through a proxy that loses
// or delays its first run, near, who also runs the bridge, speaks to Redis
// directly. The runs of a call that far makes are strictly ordered with what
// near does: its connections after the first wait at a gate.
type scene struct {
	testing.TB
	rdb       *redis.Client
	near, far *store.Queue
	bridge    *bridge
	proxy     *testenv.Proxy
	gate      chan struct{}
	firstConn int64
	farRdb    *redis.Client
	proxied   atomic.Int32             // how many of far's connections go through the proxy
	conn      atomic.Pointer[net.Conn] // the last of these
	sent      atomic.Int32             // how often they were written to
}

// sending counts the writes to a connection.
type sending struct {
	net.Conn
	sent *atomic.Int32
}

func (c sending) Write(b []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(b)
}

func newScene(t testing.TB, change ...func(*redis.Options)) *scene {
	t.Helper()
	return newSceneOn(t, testenv.Redis(t), change...)
}

func newSceneOn(t testing.TB, url string, change ...func(*redis.Options)) *scene {
	t.Helper()
	s := &scene{TB: t, rdb: connect(t, url), gate: make(chan struct{})}
	s.proxied.Store(1)
	addr := s.rdb.Options().Addr
	s.proxy = testenv.NewProxy(t, addr)
	var dials atomic.Int32
	s.farRdb = connect(t, url, append(change, func(o *redis.Options) {
		o.PoolSize, o.DialTimeout = 1, soon
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			if dials.Add(1) <= s.proxied.Load() {
				conn, err := dialer.DialContext(ctx, network, s.proxy.Addr())
				s.conn.Store(&conn)
				return sending{conn, &s.sent}, err
			}
			select {
			case <-s.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return dialer.DialContext(ctx, network, addr)
		}
	})...)
	s.near = storetest.New(t, s.rdb, 1)
	s.bridge = newBridge(t, s.near)
	s.far = store.New(s.farRdb, storetest.Prefix, s.near.Name())
	s.loadScripts()
	return s
}

// loadScripts runs every script once, elsewhere, so that Redis knows it: a lost
// reply must not be a lost NOSCRIPT.
func (s *scene) loadScripts() {
	s.Helper()
	q := storetest.New(s, s.rdb, 1)
	b := newBridge(s, q)
	create(s, q, "x", past())
	reschedule(s, q, "x", past())
	answered(s, store.Replaced, q.Producer().Schedule(s.Context(), requests(past(), "x"), true, store.Durability{})[0])
	b.finish(buried)
	cancel(s, q, "x")
	_, _, err := q.Shard(0).Reclaim(s.Context(), message.Reclaim{Instance: b.Instance})
	require.NoError(s, err)
}

// ready opens far's first connection and loads its layout, so that the next
// thing it sends is the first run of a call.
func (s *scene) ready() {
	s.Helper()
	_, err := s.far.AwaitLayout(s.Context())
	require.NoError(s, err)
	s.firstConn, err = s.farRdb.ClientID(s.Context()).Result()
	require.NoError(s, err)
}

// pipelines is ready, for a call that is a pipeline: those have a pool of their own.
func (s *scene) pipelines() {
	s.Helper()
	s.ready()
	s.proxied.Store(2)
	_, err := s.farRdb.Pipelined(s.Context(), func(p redis.Pipeliner) error { return p.Ping(s.Context()).Err() })
	require.NoError(s, err)
}

// lost makes far's call so that its first run is executed and its reply lost;
// between happens before the second run.
func (s *scene) lost(call func(), executed func(*storetest.Shard) bool, between func()) {
	s.Helper()
	s.lose(call, executed, between, func() {})
}

// cut is lost, but the connection is reset as soon as the run was executed.
func (s *scene) cut(call func(), executed func(*storetest.Shard) bool, between func()) {
	s.Helper()
	s.lose(call, executed, between, s.proxy.Cut)
}

func (s *scene) lose(call func(), executed func(*storetest.Shard) bool, between, then func()) {
	s.Helper()
	s.ready()
	s.proxy.SwallowReplies(true)
	done := inBackground(call)
	require.Eventually(s, func() bool { return executed(dump(s, s.rdb, s.near)) }, soon, 5*time.Millisecond,
		"the first run is executed")
	then()
	between()
	close(s.gate)
	<-done
}

// late makes far's call so that its first run arrives after the second one,
// which happens after between; after happens in the middle. Whatever the first
// run finds then, it must change nothing.
func (s *scene) late(call, between, after func()) {
	s.Helper()
	s.ready()
	s.proxy.Blackhole(true)
	before := s.sent.Load()
	done := inBackground(call)
	require.Eventually(s, func() bool { return s.sent.Load() > before }, soon, time.Millisecond, "the first run is sent")
	between()
	close(s.gate)
	<-done
	after()
	want := sound(s, s.rdb, s.near)
	s.deliver()
	require.Equal(s, want, sound(s, s.rdb, s.near), "the late first run changes nothing")
}

// deliver lets the first run through and waits until Redis has executed it:
// it closes the connection after what it has read from it.
func (s *scene) deliver() {
	s.Helper()
	s.proxy.Blackhole(false)
	require.Eventually(s, func() bool {
		list, err := s.rdb.Do(s.Context(), "client", "list", "id", s.firstConn).Text()
		return err == nil && !strings.Contains(list, fmt.Sprintf("id=%d ", s.firstConn))
	}, soon, 5*time.Millisecond, "the first run is delivered")
}

func inBackground(call func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	return done
}

func (*scene) nothing() {}

// Calls of far, and where their answers go.

func (s *scene) schedules(answer *store.Answer, when store.When) func() {
	return func() {
		*answer = s.far.Producer().Schedule(s.Context(), requests(when, "x"), false, store.Durability{})[0]
	}
}

func (s *scene) replaces(answer *store.Answer, when store.When) func() {
	return func() {
		r := []store.Request{{Message: note("x", "far's"), When: when}}
		*answer = s.far.Producer().Schedule(s.Context(), r, true, store.Durability{})[0]
	}
}

func (s *scene) cancels(answer *store.Answer) func() {
	return func() { *answer = s.far.Producer().Cancel(s.Context(), "x", "", store.Durability{}) }
}

func (s *scene) reschedules(answer *store.Answer, when store.When) func() {
	return func() { *answer = s.far.Producer().Reschedule(s.Context(), "x", "", when, store.Durability{}) }
}

func requests(when store.When, ids ...string) []store.Request {
	list := make([]store.Request, len(ids))
	for i, id := range ids {
		list[i] = store.Request{Message: note(id, id), When: when}
	}
	return list
}

// counted waits for a counter of meta.
func counted(name string, n int64) func(*storetest.Shard) bool {
	return func(s *storetest.Shard) bool { return s.Counter(name) >= n }
}

// Things that near does meanwhile.

func (s *scene) cancel() {
	s.Helper()
	require.Equal(s, store.Done, cancel(s, s.near, "x"))
}

func (s *scene) create(when store.When) func() {
	return func() {
		s.Helper()
		create(s, s.near, "x", when)
	}
}

func (s *scene) reschedule(when store.When) func() {
	return func() {
		s.Helper()
		require.Equal(s, store.Done, reschedule(s, s.near, "x", when))
	}
}

func (s *scene) publish() { s.bridge.finish(acked) }
func (s *scene) bury()    { s.bridge.finish(buried) }
func (s *scene) claim()   { s.bridge.claim(10) }

// mark makes the waiting message one of which a copy may be out.
func (s *scene) mark() { s.bridge.finish(unknown) }

func (s *scene) redrive() {
	codes, err := inspect.NewAdmin(s.near).Redrive(s.Context(), []string{"x"})
	require.NoError(s, err)
	require.Equal(s, []store.Code{store.Done}, codes)
}

// nextMillisecond waits until Redis' clock is past the present millisecond.
func (s *scene) nextMillisecond() {
	from, err := redisNow(s.Context(), s.rdb)
	require.NoError(s, err)
	for now := from; now <= from+1; {
		now, err = redisNow(s.Context(), s.rdb)
		require.NoError(s, err)
	}
}

// steps runs things in order.
func steps(list ...func()) func() {
	return func() {
		for _, step := range list {
			step()
		}
	}
}

// found is the message as it is now; it must be there or not.
func (s *scene) found(there bool) inspect.Snapshot {
	s.Helper()
	found, ok, err := inspect.Get(s.Context(), s.near, "x", "")
	require.NoError(s, err)
	require.Equal(s, there, ok, "the message is there")
	return found
}

func cases(t *testing.T, list map[string]func(*scene)) {
	t.Helper()
	for name, run := range list {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			run(s)
			sound(t, s.rdb, s.near)
		})
	}
}
