package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// SentinelMaster is the name under which the sentinels know the primary.
const SentinelMaster = "primary"

// Sentinel is one Redis primary with two replicas, watched by three sentinels
// of which two must agree. Its methods may be called concurrently.
type Sentinel struct {
	nodes     []*Server
	sentinels []*Server
}

// StartSentinel starts the six servers and returns when the replicas are in
// sync and the sentinels know each other. A dead primary is noticed after one
// second. The config lines are appended to those of the data nodes.
func StartSentinel(ctx context.Context, config ...string) (*Sentinel, error) {
	s := &Sentinel{}
	if err := s.start(ctx, config); err != nil {
		err = fmt.Errorf("start sentinels: %w; their log:\n%s", err, s.Log())
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sentinel) start(ctx context.Context, config []string) error {
	for i := range 3 {
		lines := dataConfig(config...)
		if i > 0 {
			lines = append(lines, fmt.Sprintf("replicaof %s %d", s.nodes[0].host.IP, s.nodes[0].port))
		}
		node, err := newRedisNode(ctx, "redis", lines)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	if err := startAll(ctx, s.nodes); err != nil {
		return err
	}
	// A sentinel asks the primary for its replicas when it starts, and then
	// every ten seconds only.
	err := await(ctx, "replicas", func(ctx context.Context) error { return s.nodes[0].leads(ctx, 2) })
	if err != nil {
		return err
	}
	for range 3 {
		sentinel, err := newRedisNode(ctx, "sentinel", []string{
			fmt.Sprintf("sentinel monitor %s %s %d 2", SentinelMaster, s.nodes[0].host.IP, s.nodes[0].port),
			"sentinel down-after-milliseconds " + SentinelMaster + " 1000",
			"sentinel failover-timeout " + SentinelMaster + " 5000",
			"sentinel parallel-syncs " + SentinelMaster + " 2",
		}, "--sentinel")
		if err != nil {
			return err
		}
		s.sentinels = append(s.sentinels, sentinel)
	}
	if err := startAll(ctx, s.sentinels); err != nil {
		return err
	}
	return s.AwaitFailover(ctx)
}

// StartOneSentinel runs a sentinel by itself, with these lines of configuration.
func StartOneSentinel(ctx context.Context, config ...string) (*Server, error) {
	s, err := newRedisNode(ctx, "sentinel", config, "--sentinel")
	if err != nil {
		return nil, err
	}
	return s.start(ctx)
}

// Addrs are the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Nodes are the data nodes, whatever their present role.
func (s *Sentinel) Nodes() []*Server { return s.nodes }

// Sentinels are the sentinels.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Primary is the node that all running sentinels name.
func (s *Sentinel) Primary(ctx context.Context) (*Server, error) {
	var agreed string
	for _, sentinel := range running(s.sentinels) {
		addr, err := primaryBy(ctx, sentinel)
		if err != nil {
			return nil, err
		}
		if agreed != "" && addr != agreed {
			return nil, fmt.Errorf("sentinels name %s and %s", agreed, addr)
		}
		agreed = addr
	}
	return byAddr(s.nodes, agreed)
}

func primaryBy(ctx context.Context, sentinel *Server) (addr string, err error) {
	err = sentinel.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		pair, err := client.Do(ctx, "sentinel", "get-master-addr-by-name", SentinelMaster).StringSlice()
		if err == nil && len(pair) != 2 {
			err = errors.New("sentinel names no primary")
		}
		if err == nil {
			addr = pair[0] + ":" + pair[1]
		}
		return err
	})
	return addr, err
}

// KillPrimary kills the primary and returns it, for [Server.Start].
func (s *Sentinel) KillPrimary(ctx context.Context) (*Server, error) {
	primary, err := s.Primary(ctx)
	if err != nil {
		return nil, err
	}
	return primary, primary.Kill()
}

// AwaitFailover returns when the sentinels agree on a primary that runs, and
// all other nodes that run follow it, one that came back among them.
func (s *Sentinel) AwaitFailover(ctx context.Context) error {
	return await(ctx, "failover", s.check)
}

func (s *Sentinel) check(ctx context.Context) error {
	primary, err := s.Primary(ctx)
	if err != nil {
		return err
	}
	live := running(s.nodes)
	if !primary.running() {
		return fmt.Errorf("sentinels name %s, which is down", primary.Addr())
	}
	if err := primary.leads(ctx, len(live)-1); err != nil {
		return err
	}
	for _, node := range live {
		if node == primary {
			continue
		}
		if err := node.follows(ctx, primary.Addr()); err != nil {
			return err
		}
	}
	for _, sentinel := range running(s.sentinels) {
		if err := s.knowsAll(ctx, sentinel); err != nil {
			return err
		}
	}
	return nil
}

// knowsAll checks that the sentinel could lead a failover now.
func (s *Sentinel) knowsAll(ctx context.Context, sentinel *Server) error {
	return sentinel.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		fields, err := client.Do(ctx, "sentinel", "master", SentinelMaster).Result()
		if err != nil {
			return err
		}
		known := textMap(fields)
		if known["num-other-sentinels"] != "2" || known["num-slaves"] != "2" || known["flags"] != "master" {
			return fmt.Errorf("sentinel %s knows %s sentinels, %s replicas, flags %s", sentinel.Addr(),
				known["num-other-sentinels"], known["num-slaves"], known["flags"])
		}
		return nil
	})
}

// textMap reads the reply of either protocol.
func textMap(reply any) map[string]string {
	fields := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			fields[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			fields[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return fields
}

// Log returns the end of the logs of all servers.
func (s *Sentinel) Log() string { return logs(append(append([]*Server{}, s.nodes...), s.sentinels...)) }

// Close kills all servers and removes their folders.
func (s *Sentinel) Close() {
	for _, server := range append(append([]*Server{}, s.sentinels...), s.nodes...) {
		server.Close()
	}
}

// logs are the ends of several logs, with headings.
func logs(servers []*Server) string {
	var all strings.Builder
	for _, server := range servers {
		_, _ = fmt.Fprintf(&all, "== %s %s\n%s", server.name, server.Addr(), end(server.Log()))
	}
	return all.String()
}

// end is what a reader needs of a log that is part of an error.
func end(log string) string { return log[max(0, len(log)-3<<10):] }
