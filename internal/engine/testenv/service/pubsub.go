package service

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// StartPubSub runs Google's server for tests, which keeps everything in memory, behind Pub/Sub's
// REST API. It takes any login.
func StartPubSub(ctx context.Context) (*Server, error) {
	bin, err := PubSubBinary(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, "pubsub")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + s.Addr()
	s.argv = []string{bin, s.Addr()}
	s.ready = func(ctx context.Context, _ int64) error {
		return exchange(ctx, s.Addr(), []byte("GET /v1/ HTTP/1.0\r\n\r\n"), []byte("HTTP/1.0 501"))
	}
	return s.start(ctx)
}

// PubSubBinary builds that server in the module of what only tests need, and returns its path.
func PubSubBinary(ctx context.Context) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "test", "thirdparty")
	version, err := requiredVersion(module, "cloud.google.com/go/pubsub/v2")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(module, "pubsub", "main.go"))
	if err != nil {
		return "", err
	}
	return Cached(root, "bin/pubsub", fmt.Sprintf("%s %x", version, sha256.Sum256(text)), func(path string) error {
		return goBuild(ctx, module, path, "./pubsub")
	})
}
