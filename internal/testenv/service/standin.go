package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StartFakeRedis runs the nearest thing to Redis that needs no program: one
// written in Go, without memory limits, persistence, replicas or cluster.
func StartFakeRedis(ctx context.Context) (*Server, error) {
	s, err := newStandIn(ctx, "redis")
	if err != nil {
		return nil, err
	}
	s.url = "redis://" + s.Addr() + "/0"
	s.ready = s.redisReady
	return s.start(ctx)
}

// StartFakeKafka runs a broker written in Go that speaks Kafka's protocol.
func StartFakeKafka(ctx context.Context) (*Server, error) {
	s, err := newStandIn(ctx, "kafka")
	if err != nil {
		return nil, err
	}
	s.url = s.Addr()
	s.ready = func(_ context.Context, started int64) error { return logHas(s.dir, started, "listening") }
	return s.start(ctx)
}

// newStandIn builds the program of the stand-ins, a child process like the
// real servers, so that no test binary links them and no goroutine of theirs
// runs in one.
func newStandIn(ctx context.Context, kind string) (*Server, error) {
	bin, err := standInBinary(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer("fake-" + kind)
	if err != nil {
		return nil, err
	}
	s.argv = []string{bin, kind, s.Addr()}
	return s, nil
}

func standInBinary(ctx context.Context) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(root, "internal/testenv/standin/main.go"))
	if err != nil {
		return "", fmt.Errorf("read stand-in: %w", err)
	}
	var versions strings.Builder
	_, _ = versions.Write(source)
	for _, module := range []string{"github.com/alicebob/miniredis/v2", "github.com/twmb/franz-go/pkg/kfake"} {
		version, err := requiredVersion(root, module)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(&versions, module, version)
	}
	return cached(root, "bin/standin", versions.String(), func(path string) error {
		return goBuild(ctx, root, path, "./internal/testenv/standin")
	})
}
