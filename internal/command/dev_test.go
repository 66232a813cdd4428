package command

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// devEnv is an environment with or without the programs of PATH.
func devEnv(path string) []string {
	return []string{"PATH=" + path, "HOME=/nonexistent", "TMPDIR=" + os.TempDir()}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"memory only": "", "redis-server": os.Getenv("PATH")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if path != "" {
				testenv.Program(t, "redis-server")
			}
			p := start(t, devEnv(path), "dev", "--demo")
			require.Equal(t, exitDone, p.wait(), p.output())
			out := p.output()
			assert.Contains(t, out, name)
			assert.Len(t, regexp.MustCompile(`(?m)^  \d+\.\d\d s  arrived +order-\d{4}/timeout  \d+ ms late$`).FindAllString(out, -1), 5, out)
			assert.Contains(t, out, "cancelled")
			assert.Contains(t, out, "rescheduled")
			assert.Contains(t, out, "Done: 5 messages arrived")
			assert.NotContains(t, out, "level=")
			assert.NoDirExists(t, regexp.MustCompile(`(?m)^  Folder +(\S+)`).FindStringSubmatch(out)[1], "removed at the end")
		})
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	p := start(t, devEnv(""), "dev", "--demo")
	p.await("rescheduled")
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
	assert.NotContains(t, p.output(), "Done:")
}

// TestDemoOutputClosed ends in order when nobody reads any more.
func TestDemoOutputClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "TMPDIR='"+dir+"' '"+binary+"' dev --demo | head -n 3").CombinedOutput()
	require.NoError(t, err, string(out))
	left, err := filepath.Glob(filepath.Join(dir, "delaybridge-dev-*[0-9]"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// startDev starts `bridge dev` and returns the commands that it tells to try.
func startDev(t *testing.T, path string, args ...string) (p *process, commands [2]string) {
	t.Helper()
	folder := ""
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // Where it was killed.
	p = start(t, devEnv(path), append([]string{"dev"}, args...)...)
	folder = regexp.MustCompile(`^  Folder +(.+?)  `).FindStringSubmatch(p.await("  Folder "))[1]
	p.await("Try in another terminal")
	for i, verb := range []string{"schedule", "get"} {
		commands[i] = p.await(" " + verb + " ")
	}
	p.await("Ctrl-C")
	return p, commands
}

// shell runs a command that was printed.
func shell(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", command).CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
	return string(out)
}

// configOf is the file that a printed command names.
func configOf(t *testing.T, command string) string {
	t.Helper()
	match := regexp.MustCompile(`--config (\S+)`).FindStringSubmatch(command)
	require.Len(t, match, 2, command)
	return match[1]
}

// TestDev does what a user would: run the printed commands.
func TestDev(t *testing.T) {
	t.Parallel()
	p, commands := startDev(t, "")
	assert.Contains(t, p.output(), "memory only")
	shell(t, strings.Replace(commands[0], "--in 10s", "--in 2s", 1))
	assert.Contains(t, shell(t, commands[1]), "scheduled")
	line := p.await("order-42/timeout  ")
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  order\.timeout  order-42/timeout  \d+ ms late$`, line)

	file := configOf(t, commands[0])
	assert.Equal(t, exitDone, bridge(t, "", "config", "validate", "--config", file).code)
	for _, topic := range []string{"new.topic", "new.other", "new", "x/y.z"} {
		o := bridge(t, "", "schedule", "--config", file, "--queue", "orders", "--topic", topic, "--in", "0s", "--id", topic, "x")
		require.Equal(t, exitDone, o.code, o)
	}
	for range 4 {
		assert.NotContains(t, p.await(" late"), "attempt", "the stream was made in time")
	}
	require.Eventually(t, func() bool { // Gone from Redis: acknowledged, so stored.
		for _, topic := range []string{"new.topic", "new.other", "new", "x/y.z"} {
			if bridge(t, "", "get", "--config", file, "--queue", "orders", "--id", topic).code != exitRefused {
				return false
			}
		}
		return true
	}, commandTimeout, 50*time.Millisecond)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
	assert.NoFileExists(t, file)
}

// TestDevInlet: what is published to the inlet is scheduled, and answered.
func TestDevInlet(t *testing.T) {
	t.Parallel()
	p, _ := startDev(t, "")
	nc, err := nats.Connect(regexp.MustCompile(`nats://[0-9.:]+`).FindString(p.output()))
	require.NoError(t, err)
	defer nc.Close()
	answers, err := nc.SubscribeSync("inlet.replies")
	require.NoError(t, err)
	m := nats.NewMsg("inlet.orders")
	m.Header = nats.Header{"delay-id": {"published"}, "delay-in": {"100"}}
	require.NoError(t, nc.PublishMsg(m))
	answer, err := answers.NextMsg(commandTimeout)
	require.NoError(t, err)
	assert.JSONEq(t, `{"op":"schedule","id":"published","key":"","status":"created","maybe_published":false}`, string(answer.Data))
	p.await("order.timeout  published  ")
}

// TestDevKeepsData restarts on the same folder, which two cannot share.
func TestDevKeepsData(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "redis-server")
	dir := filepath.Join(t.TempDir(), "it's data")
	p, _ := startDev(t, os.Getenv("PATH"), "--data", dir)
	assert.Contains(t, p.output(), "redis-server")
	file := filepath.Join(dir, "bridge.yaml")
	schedule := []string{"schedule", "--config", file, "--queue", "orders", "--topic", "t", "--id", "kept", "--in", "1h", "x"}
	require.Equal(t, exitDone, bridge(t, "", schedule...).code)

	o := bridge(t, "", "dev", "--data", dir)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "another bridge uses this folder")

	p.signal(syscall.SIGINT)
	assert.Equal(t, exitDone, p.wait(), p.output())
	p, commands := startDev(t, os.Getenv("PATH"), "--data", dir)
	assert.Contains(t, commands[0], `it'\''s data`, "quoted for the shell")
	assert.Equal(t, exitDone, bridge(t, "", "get", "--config", file, "--queue", "orders", "--id", "kept").code)
	shell(t, commands[0])
	shell(t, commands[1])
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
}

// TestDevKilled leaves no Redis behind, and one that dies ends the whole.
func TestDevKilled(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "redis-server")
	for name, kill := range map[string]func(*process, *redis.Client){
		"bridge": func(p *process, _ *redis.Client) { p.signal(syscall.SIGKILL) },
		"redis":  func(p *process, rdb *redis.Client) { _ = rdb.ShutdownNoSave(p.t.Context()).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := startDev(t, os.Getenv("PATH"))
			options, err := redis.ParseURL(regexp.MustCompile(`redis://\S+`).FindString(p.output()))
			require.NoError(t, err)
			options.MaxRetries = -1
			rdb := redis.NewClient(options)
			defer func() { _ = rdb.Close() }()
			require.NoError(t, rdb.Ping(t.Context()).Err())
			kill(p, rdb)
			assert.NotZero(t, p.wait())
			require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() != nil }, commandTimeout, 10*time.Millisecond)
			if name == "redis" {
				assert.Contains(t, p.output(), "redis-server has ended")
			}
		})
	}
}

// TestDevPortAskedFor is not replaced by another.
func TestDevPortAskedFor(t *testing.T) {
	t.Parallel()
	_, commands := startDev(t, "")
	o := bridge(t, "", "config", "print", "--config", configOf(t, commands[0]))
	port := regexp.MustCompile(`redis://127\.0\.0\.1:(\d+)`).FindStringSubmatch(o.stdout)[1]
	o = bridge(t, "", "dev", "--redis-port", port)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, port)
}

// TestProductionLinksNoServer: what is for trying things out is in the other build only, and
// the command says where.
func TestProductionLinksNoServer(t *testing.T) {
	t.Parallel()
	production, err := service.Build(t.Context(), "./cmd/bridge", t.TempDir(), "-tags", "production")
	require.NoError(t, err)
	modules := func(file string) (paths []string) {
		info, err := buildinfo.ReadFile(file)
		require.NoError(t, err)
		for _, module := range info.Deps {
			paths = append(paths, module.Path)
		}
		return paths
	}
	size := func(file string) int64 {
		info, err := os.Stat(file)
		require.NoError(t, err)
		return info.Size()
	}
	for _, server := range []string{"github.com/nats-io/nats-server/v2", "github.com/alicebob/miniredis/v2"} {
		assert.NotContains(t, modules(production), server)
		assert.Contains(t, modules(binary), server)
	}
	assert.NotContains(t, modules(production), "github.com/stretchr/testify")
	t.Logf("bridge has %d bytes and %d modules in production, %d and %d otherwise",
		size(production), len(modules(production)), size(binary), len(modules(binary)))
	assert.Less(t, size(production), size(binary))

	dev := exec.CommandContext(t.Context(), production, "dev", "--demo")
	out, err := dev.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, exitFailed, dev.ProcessState.ExitCode())
	assert.Contains(t, string(out), "this build is for production")
	assert.Contains(t, string(out), "delaybridge-dev")
	out, err = exec.CommandContext(t.Context(), production, "man").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), "bridge dev")
}
