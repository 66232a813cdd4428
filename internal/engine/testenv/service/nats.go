package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StartNATS runs the nats-server of the version in go.mod with JetStream;
// extraConfig is appended to its configuration file.
func StartNATS(ctx context.Context, extraConfig string) (*Server, error) {
	s, err := newNATS(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.configureNATS(extraConfig); err != nil {
		return s.abandon(err)
	}
	return s.start(ctx)
}

// StartNATSCluster runs three servers that know each other, and returns when one of
// them leads JetStream. The name of each in the cluster is its address; extraConfig is
// appended to the configuration of each.
func StartNATSCluster(ctx context.Context, extraConfig string) (nodes []*Server, err error) {
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("start cluster: %w; its log:\n%s", err, logs(nodes))
		for _, node := range nodes {
			node.Close()
		}
	}()
	var routes []string
	for range 3 {
		node, err := newNATS(ctx)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, node)
		if err := node.reserveBus(); err != nil {
			return nodes, err
		}
		routes = append(routes, fmt.Sprintf(`"nats://%s"`, node.host.At(node.bus)))
	}
	for _, node := range nodes {
		cluster := fmt.Sprintf("server_name: %q\ncluster {name: test, listen: %q, routes: [%s]}\n",
			node.Addr(), node.host.At(node.bus), strings.Join(routes, ", "))
		if err := node.configureNATS(cluster + extraConfig); err != nil {
			return nodes, err
		}
	}
	if err := startAll(ctx, nodes); err != nil {
		return nodes, err
	}
	return nodes, await(ctx, "leader of JetStream", func(context.Context) (err error) {
		for _, node := range nodes {
			if err = logHas(node.dir, 0, "Self is new JetStream cluster metadata leader"); err == nil {
				return nil
			}
		}
		return err
	})
}

// newNATS is a server without its configuration.
func newNATS(ctx context.Context) (*Server, error) {
	bin, err := NATSBinary(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, "nats")
	if err != nil {
		return nil, err
	}
	s.url = "nats://" + s.Addr()
	s.argv = []string{bin, "--config", s.natsConfig()}
	// The server listens only after JetStream has recovered, and speaks first.
	s.ready = func(ctx context.Context, _ int64) error { return exchange(ctx, s.Addr(), nil, []byte("INFO ")) }
	return s, nil
}

func (s *Server) natsConfig() string { return filepath.Join(s.dir, "nats.conf") }

func (s *Server) configureNATS(extraConfig string) error {
	config := fmt.Sprintf("listen: %q\njetstream {store_dir: %q}\n%s\n", s.Addr(), s.dir, extraConfig)
	if err := os.WriteFile(s.natsConfig(), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write NATS configuration: %w", err)
	}
	return nil
}

// NATSBinary builds nats-server from its module, once, and returns its path.
func NATSBinary(ctx context.Context) (string, error) {
	const module = "github.com/nats-io/nats-server/v2"
	root, err := Root()
	if err != nil {
		return "", err
	}
	version, err := requiredVersion(root, module)
	if err != nil {
		return "", err
	}
	return Cached(root, "bin/nats-server", version, func(path string) error {
		return goBuild(ctx, root, path, module)
	})
}
