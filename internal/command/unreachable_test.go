package command

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// giveUp is how long a command may try to reach Redis.
const giveUp = 15 * time.Second

// elsewhere is the configuration of a fixture with another Redis.
func elsewhere(t *testing.T, f *fixture, url string) string {
	t.Helper()
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	text = regexp.MustCompile(`(?m)^redis: .*$`).ReplaceAll(text, []byte(`redis: {url: "`+url+`"}`))
	file := filepath.Join(t.TempDir(), "elsewhere.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

var redisCommands = [][]string{
	{"schedule", "--topic", "t", "--in", "1h", "x"},
	{"get", "--id", "a"},
	{"cancel", "--id", "a"},
	{"reschedule", "--id", "a", "--in", "1h"},
	{"dead", "list"},
	{"dead", "show", "a"},
	{"dead", "redrive", "--all"},
	{"dead", "purge", "--all", "--yes"},
}

// TestUnreachable tries a port that refuses, and one that takes connections and
// stays silent.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	silent, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	began := time.Now()
	waits := map[string][]func() outcome{"127.0.0.1:1": nil, silent.Addr().String(): nil}
	for addr := range waits {
		file := elsewhere(t, f, "redis://user:hidden@"+addr+"/0")
		for _, command := range redisCommands {
			waits[addr] = append(waits[addr], begin(t, "", append(command, "--config", file, "--queue", "orders", "-o", "json")...))
		}
	}
	for addr, commands := range waits {
		for i, wait := range commands {
			o := wait()
			assert.Equal(t, exitFailed, o.code, "%v: %+v", redisCommands[i], o)
			assert.Empty(t, o.stdout)
			code, _ := o.errorOf(t)
			assert.Equal(t, "unavailable", code)
			assert.Contains(t, o.stderr, addr)
			assert.NotContains(t, o.stderr, "hidden")
		}
	}
	assert.Less(t, time.Since(began), giveUp)
}

// TestRedisFallsSilent loses Redis while the command waits for standard input.
func TestRedisFallsSilent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	server := testenv.StartRedis(t)
	options, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	proxy := testenv.NewProxy(t, server.Addr())

	cmd := exec.CommandContext(t.Context(), binary, "schedule", "--config", elsewhere(t, f, "redis://"+proxy.Addr()+"/0"),
		"--queue", "orders", "--topic", "t", "--in", "1h", "-o", "json", "-")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		clients, err := rdb.ClientList(t.Context()).Result()
		return err == nil && strings.Contains(clients, "cmd=ping")
	}, commandTimeout, 10*time.Millisecond)
	proxy.Blackhole(true)
	began := time.Now()
	_, err = stdin.Write([]byte("body"))
	require.NoError(t, err)
	require.NoError(t, stdin.Close())
	require.Error(t, cmd.Wait())
	assert.Less(t, time.Since(began), giveUp)
	assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode())
	code, _ := outcome{stderr: stderr.String()}.errorOf(t)
	assert.Contains(t, []string{"unknown", "unavailable"}, code, stderr.String())
}

// TestInterrupted ends a command that waits, with the first signal.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := setup(t)
	p := start(t, os.Environ(), "get", "--config", elsewhere(t, f, "redis://127.0.0.1:1/0"), "--queue", "orders", "--id", "a")
	p.signal(syscall.SIGTERM)
	assert.NotZero(t, p.wait())
}
