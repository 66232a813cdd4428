package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// StartNATS runs the nats-server of the version in go.mod with JetStream;
// extraConfig is appended to its configuration file.
func StartNATS(ctx context.Context, extraConfig string) (*Server, error) {
	bin, err := NATSBinary(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer("nats")
	if err != nil {
		return nil, err
	}
	s.url = "nats://" + s.Addr()
	file := filepath.Join(s.dir, "nats.conf")
	config := fmt.Sprintf("listen: %q\njetstream {store_dir: %q}\n%s\n", s.Addr(), s.dir, extraConfig)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return s.abandon(fmt.Errorf("write NATS configuration: %w", err))
	}
	s.argv = []string{bin, "--config", file}
	// The server listens only after JetStream has recovered, and speaks first.
	s.ready = func(ctx context.Context, _ int64) error { return exchange(ctx, s.Addr(), nil, []byte("INFO ")) }
	return s.start(ctx)
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
	return cached(root, "bin/nats-server", version, func(path string) error {
		return goBuild(ctx, root, path, module)
	})
}
