package dev

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is more than anything here may take.
const timeout = 30 * time.Second

// startServers starts servers on free ports, and closes them at the end.
func startServers(t *testing.T, o Options) *Servers {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func connect(t *testing.T, s *Servers) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := nats.Connect("nats://" + s.NATSAddr)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncTimeout(timeout))
	require.NoError(t, err)
	return conn, js
}

// bridgeMsg is a message as the bridge publishes it.
func bridgeMsg(topic string, n int) *nats.Msg {
	id := "m" + strconv.Itoa(n)
	return &nats.Msg{Subject: topic, Data: []byte(id), Header: nats.Header{
		"delay-uid": {"uid-" + id}, "delay-id": {id}, "delay-queue": {"orders"}, "delay-attempt": {"1"},
		"delay-due-at": {"2026-01-02T03:04:05.678Z"}, "delay-scheduled-at": {"2026-01-02T03:04:05.000Z"},
		nats.MsgIdHdr: {id},
	}}
}

// next is the next message that has arrived.
func next(t *testing.T, arrivals <-chan Arrival) Arrival {
	t.Helper()
	select {
	case a := <-arrivals:
		return a
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "nothing has arrived")
		return Arrival{}
	}
}

// TestStreamIsMade publishes many messages at once to topics without a stream:
// each is acknowledged and stored once.
func TestStreamIsMade(t *testing.T) {
	t.Parallel()
	const n = 500
	arrivals := make(chan Arrival, n)
	s := startServers(t, Options{OnPublish: func(a Arrival) { arrivals <- a }})
	_, js := connect(t, s)
	topics := []string{"order.timeout", "order.reminder", "order", "pay.x"}
	futures := make([]jetstream.PubAckFuture, n)
	for i := range futures {
		var err error
		futures[i], err = js.PublishMsgAsync(bridgeMsg(topics[i%len(topics)], i))
		require.NoError(t, err)
	}
	for i, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			require.NoError(t, err, i)
		}
	}
	for name, want := range map[string]uint64{"order": n / 4 * 3, "pay": n / 4} {
		stream, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, info.State.Msgs, name)
	}
	a := next(t, arrivals)
	assert.Equal(t, []any{"orders", "m0", "2026-01-02T03:04:05.678Z", 1},
		[]any{a.Queue, a.ID, a.DueAt.Format("2006-01-02T15:04:05.000Z"), a.Attempt})
}

// TestStreamOfOthers leaves what is there alone, and makes no stream for what is
// not the bridge's.
func TestStreamOfOthers(t *testing.T) {
	t.Parallel()
	arrivals := make(chan Arrival, 10)
	s := startServers(t, Options{OnPublish: func(a Arrival) { arrivals <- a }})
	conn, js := connect(t, s)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "mine", Subjects: []string{"order.special", "other.>"}})
	require.NoError(t, err)
	require.NoError(t, conn.Publish("theirs.x", nil))
	for i, topic := range []string{"order.special", "order.timeout", "a/b.c"} {
		ack, err := js.PublishMsg(t.Context(), bridgeMsg(topic, i))
		require.NoError(t, err, topic)
		assert.Equal(t, []string{"mine", streamName("order.timeout"), streamName("a/b")}[i], ack.Stream)
		assert.False(t, ack.Duplicate)
		next(t, arrivals)
	}
	_, err = js.StreamNameBySubject(t.Context(), "theirs.x")
	assert.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

func TestStreamName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "order-1_A", streamName("order-1_A"))
	assert.NotEqual(t, streamName("a/b"), streamName("a_b"))
	assert.NotEqual(t, streamName("a/b"), streamName("a*b"))
	assert.Regexp(t, `^[A-Za-z0-9_-]{1,80}$`, streamName("é.*>"+string(make([]byte, 300))))
}

func TestFollow(t *testing.T) {
	t.Parallel()
	s := startServers(t, Options{})
	_, js := connect(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	arrivals := make(chan Arrival, 10)
	require.NoError(t, s.Follow(ctx, "order.timeout", func(a Arrival) { arrivals <- a }))
	for i, topic := range []string{"order.other", "order.timeout"} {
		_, err := js.PublishMsg(t.Context(), bridgeMsg(topic, i))
		require.NoError(t, err)
	}
	assert.Equal(t, "m1", next(t, arrivals).ID)
}

// TestFolderInUse refuses a second user, and lets the next one in.
func TestFolderInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServers(t, Options{Dir: dir})
	_, err := Start(t.Context(), Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, err, ErrInUse)
	s.Close()
	startServers(t, Options{Dir: dir})
}

// TestPorts takes what is asked for, or fails.
func TestPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err = bind(Options{NATSPort: port})
	require.ErrorContains(t, err, "nats port")
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	other, err := listen(0, port)
	require.NoError(t, err, "the usual port is taken: a free one")
	defer func() { _ = other.Close() }()
	assert.NotEqual(t, port, other.Addr().(*net.TCPAddr).Port)
}

// TestTogether starts several at once: no two get the same port, and the admin
// port is held before the bridge is there, else two bridges could mean the same.
func TestTogether(t *testing.T) {
	t.Parallel()
	const n = 5
	started := make(chan *Servers, n)
	for range n {
		go func() {
			s, err := Start(t.Context(), Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
			assert.NoError(t, err)
			started <- s
		}()
	}
	addrs := map[string]bool{}
	for range n {
		s := <-started
		require.NotNil(t, s)
		t.Cleanup(s.Close)
		_, err := new(net.ListenConfig).Listen(t.Context(), "tcp", s.Admin.Addr().String())
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		for _, addr := range []string{s.RedisAddr, s.NATSAddr, s.Admin.Addr().String()} {
			assert.False(t, addrs[addr], addr)
			addrs[addr] = true
		}
	}
}

// newMini starts the Redis in this process, with a client of it.
func newMini(t *testing.T) (mini, *redis.Client) {
	t.Helper()
	addr := "127.0.0.1:" + testenv.Port(t)
	server, err := startMini(addr)
	require.NoError(t, err)
	t.Cleanup(server.close)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return server.(mini), rdb
}

// TestMini checks what the bridge needs of the Redis in this process: keys that expire.
func TestMini(t *testing.T) {
	t.Parallel()
	_, rdb := newMini(t)
	require.NoError(t, rdb.Set(t.Context(), "k", "v", 50*time.Millisecond).Err())
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), "k").Val() == 0 }, timeout, 5*time.Millisecond)
}

// TestChild runs redis-server: its data stays, its end is seen.
func TestChild(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "redis-server")
	_, version := findRedis(t.Context())
	dir := t.TempDir()
	s := startServers(t, Options{Dir: dir})
	assert.Equal(t, "redis-server "+version, s.RedisNote)
	rdb := redis.NewClient(&redis.Options{Addr: s.RedisAddr})
	require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, rdb.Close())
	s.Close()

	s = startServers(t, Options{Dir: dir})
	rdb = redis.NewClient(&redis.Options{Addr: s.RedisAddr, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	assert.Equal(t, "v", rdb.Get(t.Context(), "k").Val())
	_ = rdb.ShutdownNoSave(t.Context()).Err()
	select {
	case err := <-s.Failed():
		assert.ErrorContains(t, err, "redis-server has ended")
	case <-time.After(timeout):
		t.Fatal("the end was not seen")
	}
}

// TestOldRedis is passed over.
func TestOldRedis(t *testing.T) {
	for version, usable := range map[string]bool{"5.0.14": false, "6.0.16": false, "6.2.0": true, "7.0.15": true, "10.0": true} {
		dir := t.TempDir()
		script := fmt.Sprintf("#!/bin/sh\necho Redis server v=%s sha=0\n", version)
		require.NoError(t, os.WriteFile(dir+"/redis-server", []byte(script), 0o700))
		t.Setenv("PATH", dir)
		path, err := exec.LookPath("redis-server")
		require.NoError(t, err)
		got, gotVersion := findRedis(t.Context())
		assert.Equal(t, version, gotVersion)
		assert.Equal(t, usable, got == path, version)
	}
}
