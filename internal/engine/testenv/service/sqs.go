package service

import (
	"context"
	_ "embed" // the list of ElasticMQ's artifacts
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed sqs-pom.xml
var sqsPOM []byte

// StartSQS runs ElasticMQ, which speaks the protocol of Amazon SQS, with its limits. It takes any
// login, and keeps everything in memory.
func StartSQS(ctx context.Context) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("%w: java", ErrMissing)
	}
	libs, err := archives(ctx, "sqs", sqsPOM)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, "sqs")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + s.Addr()
	s.argv = []string{
		// Fast to start rather than fast at its peak, and small.
		java, "-Xmx512m", "-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
		"-Drest-sqs.bind-hostname=" + s.host.IP, "-Drest-sqs.bind-port=" + strconv.Itoa(s.port), "-Dgenerate-node-address=true",
		"-Dpekko.loglevel=INFO", "-cp", filepath.Join(libs, "*"), "org.elasticmq.server.Main",
	}
	s.ready = func(ctx context.Context, started int64) error { return logHas(s.dir, started, "=== ElasticMQ server") }
	return s.start(ctx)
}

// FetchSQS gets all that [StartSQS] needs.
func FetchSQS(ctx context.Context) error {
	_, err := archives(ctx, "sqs", sqsPOM)
	return err
}
