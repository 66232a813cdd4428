package command

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// scene is a bridge that reaches Redis, and the stream that it publishes to, by links that a test breaks.
type scene struct {
	*fixture
	topic         string
	queues, sinks *testenv.Proxy
	streams       *redis.Client
	behind        string // the configuration of a bridge behind these links
}

// newScene has streams on the shared Redis, and queues on that server.
func newScene(t *testing.T, server string) *scene {
	t.Helper()
	address, err := url.Parse(server)
	require.NoError(t, err)
	streams, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	s := &scene{
		fixture: setupAt(t, server, 1, "nats://127.0.0.1:1", ""), topic: testenv.Name(t, "stream"),
		queues: testenv.NewProxy(t, address.Host), sinks: testenv.NewProxy(t, streams.Addr), streams: redis.NewClient(streams),
	}
	t.Cleanup(func() { _ = s.streams.Close() })
	text, err := os.ReadFile(s.file)
	require.NoError(t, err)
	config := func(queues, sinks string) string {
		with := strings.Replace(string(text), server, "redis://"+queues, 1)
		with = strings.Replace(with, `{type: nats, url: "nats://127.0.0.1:1"}`, fmt.Sprintf("{type: redis, url: %q}", "redis://"+sinks), 1)
		file := filepath.Join(t.TempDir(), "bridge.yaml")
		require.NoError(t, os.WriteFile(file, []byte(with), 0o600))
		return file
	}
	s.behind, s.file = config(s.queues.Addr(), s.sinks.Addr()), config(address.Host, streams.Addr)
	require.NoError(t, s.streams.XGroupCreateMkStream(t.Context(), s.topic, "group", "$").Err())
	t.Cleanup(func() { _ = s.streams.Del(context.WithoutCancel(t.Context()), s.topic).Err() })
	return s
}

// becomes waits until Redis says so.
func (s *scene) becomes(what string, is func() (bool, error)) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		ok, err := is()
		return err == nil && ok
	}, commandTimeout, 5*time.Millisecond, what)
}

func (s *scene) claimed() {
	s.t.Helper()
	s.becomes("claimed", func() (bool, error) {
		n, err := s.rdb.HLen(s.t.Context(), s.queue.Keys().Shard(0).Claims).Result()
		return n > 0, err
	})
}

func (s *scene) stored(n int64) {
	s.t.Helper()
	s.becomes("stored", func() (bool, error) {
		got, err := s.streams.XLen(s.t.Context(), s.topic).Result()
		return got == n, err
	})
}

// left waits until so many messages wait or are in flight.
func (s *scene) left(n int64) {
	s.t.Helper()
	s.becomes("settled", func() (bool, error) {
		got, err := s.rdb.HLen(s.t.Context(), s.queue.Keys().Shard(0).Msg).Result()
		return got == n, err
	})
}

// due makes the message due that waits.
func (s *scene) due() {
	s.t.Helper()
	s.ok("reschedule", "--id", "m", "--in", "0s")
}

// TestKilledAtEachStep kills a bridge, as kill -9 does, at each step of a message's way. The next one publishes it:
// again only where the first may have, and then the copy says so. It checks I1, I3 and I6.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name string
		// until brings the bridge to the step; without it, the message is due only for the next one.
		until   func(s *scene)
		copies  int
		attempt string // of the last copy
	}{
		{"before the claim", nil, 1, "1"},
		{"claimed, and not sent", func(s *scene) {
			s.sinks.Blackhole(true)
			s.due()
			s.claimed()
		}, 1, "2"},
		{"sent, and not acknowledged", func(s *scene) {
			s.ok("schedule", "--topic", s.topic, "--in", "0s", "--id", "before", "x") // It opens the connection.
			s.stored(1)
			s.left(1)
			require.NoError(s.t, s.streams.XTrimMaxLen(s.t.Context(), s.topic, 0).Err())
			s.sinks.SwallowReplies(true)
			s.due()
			s.stored(1)
		}, 2, "2"},
		{"acknowledged, and not settled", func(s *scene) {
			s.sinks.Blackhole(true)
			s.due()
			s.claimed()
			s.queues.Blackhole(true)
			s.sinks.Blackhole(false)
			s.stored(1)
		}, 2, "2"},
		{"settled, and the answer is lost", func(s *scene) {
			s.sinks.Blackhole(true)
			s.due()
			s.claimed()
			s.queues.SwallowReplies(true)
			s.sinks.Blackhole(false)
			s.left(0)
		}, 1, "1"},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, testenv.Redis(t))
			s.ok("schedule", "--topic", s.topic, "--in", "1h", "--id", "m", "x")
			first := start(t, os.Environ(), "run", "--config", s.behind)
			first.awaitPolling()
			if step.until != nil {
				step.until(s)
			}
			require.NoError(t, first.cmd.Process.Kill())
			first.wait()
			if step.until == nil {
				s.due()
			}

			second := start(t, os.Environ(), "run", "--config", s.file)
			second.awaitPolling()
			s.left(0)
			second.signal(syscall.SIGTERM)
			assert.Equal(t, exitDone, second.wait(), second.output())
			copies, err := s.streams.XRange(t.Context(), s.topic, "-", "+").Result()
			require.NoError(t, err)
			require.Len(t, copies, step.copies)
			last := copies[len(copies)-1].Values
			assert.Equal(t, step.attempt, last["delay-attempt"])
			assert.Equal(t, copies[0].Values["delay-uid"], last["delay-uid"], "the same message")
			o := bridge(t, "", "verify", "--config", s.file, "orders")
			assert.Equal(t, exitDone, o.code, "%+v", o)
		})
	}
}

// TestRedisDiskFull has Redis refuse all writes, as on a full disk, while what was claimed is acknowledged. It is not
// published again and again, since nothing is claimed by a Redis that refuses; what was acknowledged is settled in the
// end. It checks I3 and I7.
func TestRedisDiskFull(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--dbfilename", "in-the-way")
	s := newScene(t, server.URL())
	p := start(t, os.Environ(), "run", "--config", s.behind)
	p.awaitPolling()
	s.sinks.Blackhole(true)
	s.ok("schedule", "--topic", s.topic, "--in", "0s", "--id", "m", "x")
	s.claimed()

	require.NoError(t, os.Mkdir(filepath.Join(server.Dir(), "in-the-way"), 0o700)) // Where the snapshot belongs.
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "save", "3600 1").Err())
	require.NoError(t, s.rdb.BgSave(t.Context()).Err())
	s.becomes("full", func() (bool, error) {
		info, err := s.rdb.Info(t.Context(), "persistence").Result()
		return strings.Contains(info, "rdb_last_bgsave_status:err"), err
	})
	s.sinks.Blackhole(false)
	s.stored(1)
	refused := func(more int) {
		t.Helper()
		var from, n int
		s.becomes("refused", func() (bool, error) {
			info, err := s.rdb.Info(t.Context(), "errorstats").Result()
			if _, count, is := strings.Cut(info, "errorstat_MISCONF:count="); is {
				_, _ = fmt.Sscan(count, &n)
			}
			if from == 0 {
				from = n
			}
			return n >= from+more, err
		})
	}
	refused(5)
	o := s.run("schedule", "--topic", s.topic, "--in", "0s", "--id", "n", "x")
	assert.NotEqual(t, exitDone, o.code, "a producer is told: %+v", o)
	s.stored(1)

	require.NoError(t, s.rdb.ConfigSet(t.Context(), "stop-writes-on-bgsave-error", "no").Err())
	s.left(0)
	s.ok("schedule", "--topic", s.topic, "--in", "0s", "--id", "n", "x")
	s.stored(2)
	s.left(0)
	entries, err := s.streams.XRange(t.Context(), s.topic, "-", "+").Result()
	require.NoError(t, err)
	assert.Equal(t, []any{"m", "n"}, []any{entries[0].Values["delay-id"], entries[1].Values["delay-id"]}, "each once")
}

// TestLogCannotBeWritten has the disk be full that the log goes to: messages are published all the same, and the
// bridge ends as it should.
func TestLogCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no disk that is always full: ", err)
	}
	defer func() { _ = full.Close() }()
	s := newScene(t, testenv.Redis(t))
	s.ok("schedule", "--topic", s.topic, "--in", "0s", "--id", "m", "x")
	cmd := exec.Command(binary, "run", "--config", s.behind) //nolint:noctx // the cleanup kills it
	cmd.Stdout, cmd.Stderr = full, full
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s.stored(1)
	s.left(0)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait())
}
