package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	settleTimeout  = 90 * time.Second // for a group of servers to agree, on a loaded machine
	settleInterval = 100 * time.Millisecond
	askTimeout     = 2 * time.Second
)

// newRedisNode prepares a server of a group. Its configuration is a file, so
// that a role given to it at run time outlives a restart, and it appends to a
// log, so that a killed one comes back with its data.
func newRedisNode(ctx context.Context, name string, config []string, flags ...string) (*Server, error) {
	bin, err := redisProgram("")
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "redis.conf")
	lines := append([]string{
		"port " + strconv.Itoa(s.port), "bind " + s.host.IP, "protected-mode no", "dir " + s.dir, "daemonize no",
	}, config...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return s.abandon(fmt.Errorf("write configuration: %w", err))
	}
	s.url = "redis://" + s.Addr() + "/0"
	s.argv = append([]string{bin, file}, flags...)
	s.ready = s.redisReady
	return s, nil
}

// dataConfig is the configuration of a node that holds data.
func dataConfig(more ...string) []string {
	return append([]string{
		`save ""`, "appendonly yes", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
	}, more...)
}

// running reports whether the server was started and not ended by us.
func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != nil
}

// running are those of the servers that run.
func running(servers []*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool { return !s.running() })
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

func byAddr(servers []*Server, addr string) (*Server, error) {
	for _, s := range servers {
		if s.Addr() == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server of ours is at %s", addr)
}

// ask gives do a client of this server alone.
func (s *Server) ask(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	return do(ctx, client)
}

// info returns one section of the server's INFO.
func (s *Server) info(ctx context.Context, section string) (fields map[string]string, err error) {
	err = s.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		all, err := client.InfoMap(ctx, strings.ToLower(section)).Result()
		fields = all[section]
		return err
	})
	return fields, err
}

// follows checks that the server is a replica of that primary and in sync.
func (s *Server) follows(ctx context.Context, primary string) error {
	info, err := s.info(ctx, "Replication")
	if err != nil {
		return err
	}
	addr := info["master_host"] + ":" + info["master_port"]
	if info["role"] != "slave" || addr != primary || info["master_link_status"] != "up" {
		return fmt.Errorf("%s is %s of %s, link %s", s.Addr(), info["role"], addr, info["master_link_status"])
	}
	return nil
}

// leads checks that the server is a primary with so many replicas in sync.
func (s *Server) leads(ctx context.Context, replicas int) error {
	info, err := s.info(ctx, "Replication")
	if err != nil {
		return err
	}
	online := 0
	for i := range replicas {
		if strings.Contains(info["slave"+strconv.Itoa(i)], "state=online") {
			online++
		}
	}
	if info["role"] != "master" || online < replicas {
		return fmt.Errorf("%s is %s with %d replicas of %d", s.Addr(), info["role"], online, replicas)
	}
	return nil
}

// await repeats check until it succeeds.
func await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w", what, err)
		}
	}
}

// startAll starts the servers.
func startAll(ctx context.Context, servers []*Server) error {
	for _, s := range servers {
		if err := s.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}
