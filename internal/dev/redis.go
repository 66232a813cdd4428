package dev

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

// The oldest Redis that the bridge works with.
const oldestMajor, oldestMinor = 6, 2

// startRedis starts redis-server from PATH, or the Redis in this process where
// there is none that is new enough, or inMemory asks for it.
func startRedis(ctx context.Context, addr, dir string, inMemory bool) (server redisServer, note string, err error) {
	bin, version := "", ""
	if !inMemory {
		bin, version = findRedis(ctx)
	}
	if bin == "" {
		server, err = startMini(addr)
		note = "in-process, memory only: what waits is lost when it ends"
		if version != "" {
			note += "; redis-server " + version + " in PATH is too old"
		}
		return server, note, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", fmt.Errorf("split address: %w", err)
	}
	child, err := startChild(dir, bin,
		"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "yes",
		"--maxmemory-policy", "noeviction", "--daemonize", "no")
	if err != nil {
		return nil, "", err
	}
	if err := awaitPong(ctx, addr, child); err != nil {
		child.close()
		return nil, "", fmt.Errorf("%w; its log:\n%s", err, child.log())
	}
	return child, "redis-server " + version, nil
}

var redisVersion = regexp.MustCompile(`v=((\d+)\.(\d+)[^ ]*)`)

// findRedis looks for redis-server in PATH. Without a path, version is that of
// one which is too old, or empty.
func findRedis(ctx context.Context) (path, version string) {
	path, err := exec.LookPath("redis-server")
	if err != nil || !canSupervise {
		return "", ""
	}
	text, err := exec.CommandContext(ctx, path, "--version").Output()
	match := redisVersion.FindSubmatch(text)
	if err != nil || match == nil {
		return "", ""
	}
	major, _ := strconv.Atoi(string(match[2])) // It matched \d+.
	minor, _ := strconv.Atoi(string(match[3]))
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return "", string(match[1])
	}
	return path, string(match[1])
}

// mini is the Redis in this process.
type mini struct {
	server *miniredis.Miniredis
	clock  *Clock
}

func startMini(addr string) (redisServer, error) {
	m := mini{server: miniredis.NewMiniRedis()}
	m.server.ClockTTL(true) // Else a lease would never end.
	if err := m.server.StartAddr(addr); err != nil {
		return m, err
	}
	m.clock = newClock(m.server)
	return m, nil
}

func (m mini) failed() <-chan error { return nil }
func (m mini) close()               { m.server.Close() }
