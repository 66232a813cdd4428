// Package testenv gives the tests real servers: one shared server of each
// kind for tests that only need a broker, Redis or a database, private ones for
// tests that kill, pause or configure them, a TCP proxy that misbehaves on
// demand, and certificates.
//
// Shared servers come from DELAYBRIDGE_TEST_*_URL (REDIS, NATS, RABBITMQ, KAFKA,
// POSTGRES, MARIADB), which the suite driver in test/services sets; without them
// each test process starts its own on first use, and that one dies with it. Where a
// program is missing the test that needs it is skipped, or fails if CI=true. Tests that share
// a server keep apart by [Name] and never flush it.
//
// Only tests import this package.
package testenv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// sharedServer is one server for all tests of this process.
type sharedServer struct {
	kind  string
	env   string
	start func(context.Context) (*service.Server, error)

	mu     sync.Mutex
	server *service.Server // held, since a collected one closes its pipe and so ends
	url    string
	err    error
}

var (
	sharedRedis = &sharedServer{
		kind: "Redis", env: "DELAYBRIDGE_TEST_REDIS_URL",
		start: func(ctx context.Context) (*service.Server, error) { return service.StartRedis(ctx) },
	}
	sharedNATS = &sharedServer{
		kind: "NATS", env: "DELAYBRIDGE_TEST_NATS_URL",
		start: func(ctx context.Context) (*service.Server, error) { return service.StartNATS(ctx, "") },
	}
	sharedRabbitMQ = &sharedServer{
		kind: "RabbitMQ", env: "DELAYBRIDGE_TEST_RABBITMQ_URL",
		start: func(ctx context.Context) (*service.Server, error) { return service.StartRabbitMQ(ctx, "") },
	}
	sharedKafka = &sharedServer{
		kind: "Kafka", env: "DELAYBRIDGE_TEST_KAFKA_URL",
		start: func(ctx context.Context) (*service.Server, error) { return service.StartKafka(ctx, "") },
	}
	// The suite driver does not start these: the tests of one package use each.
	sharedPubSub = &sharedServer{kind: "Pub/Sub", env: "DELAYBRIDGE_TEST_PUBSUB_URL", start: service.StartPubSub}
	sharedSQS    = &sharedServer{kind: "SQS", env: "DELAYBRIDGE_TEST_SQS_URL", start: service.StartSQS}
)

// Redis returns the URL of a shared Redis.
func Redis(t testing.TB) string {
	t.Helper()
	return sharedRedis.get(t)
}

// NATS returns the URL of a shared NATS server with JetStream.
func NATS(t testing.TB) string {
	t.Helper()
	return sharedNATS.get(t)
}

// RabbitMQ returns the URL of a shared RabbitMQ, with its guest user.
func RabbitMQ(t testing.TB) string {
	t.Helper()
	return sharedRabbitMQ.get(t)
}

// PubSub returns the URL of a shared Pub/Sub of Google's server for tests, or of the emulator of the
// variable, which take any login and keep everything in memory.
func PubSub(t testing.TB) string {
	t.Helper()
	return sharedPubSub.get(t)
}

// SQS returns the URL of a shared ElasticMQ, which speaks the protocol of Amazon SQS, takes any
// login and keeps everything in memory.
func SQS(t testing.TB) string {
	t.Helper()
	return sharedSQS.get(t)
}

// Kafka returns the brokers of a shared Kafka, which creates no topics by
// itself.
func Kafka(t testing.TB) []string {
	t.Helper()
	return strings.Split(sharedKafka.get(t), ",")
}

func (s *sharedServer) get(t testing.TB) string {
	t.Helper()
	if url := os.Getenv(s.env); url != "" {
		return url
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.url == "" && s.err == nil {
		// Not closed: its supervisor ends it when this process ends.
		if s.server, s.err = s.start(t.Context()); s.err == nil {
			s.url = s.server.URL()
		}
	}
	if s.err != nil {
		missing(t, s.err)
	}
	return s.url
}

// Port returns a port that nobody listens on, for a server that a test starts itself. Until the
// test ends no other test gets it, and no outgoing connection takes it.
func Port(t testing.TB) string {
	t.Helper()
	port, free, err := service.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return strconv.Itoa(port)
}

// Listen listens where this process did a moment ago. A process that another test starts has a copy
// of our sockets until it runs its own program, so the address is in use for as long.
func Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	const patience, interval = time.Minute, time.Millisecond
	for began := time.Now(); ; wait.Sleep(t.Context(), interval) {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		switch {
		case err == nil:
			return listener
		case !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > patience:
			t.Fatal(err)
		}
	}
}

// Program returns the path of a program that a test runs itself.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, fmt.Errorf("%w: %w", service.ErrMissing, err))
	}
	return path
}

// missing skips a test that needs a program which this machine does not have; any other
// error, and any in CI, is a failure.
func missing(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, service.ErrMissing) && !inCI() {
		_, _ = fmt.Fprintf(os.Stderr, "\n!!! testenv: %s SKIPPED: %v\n\n", t.Name(), err)
		t.Skip(err)
	}
	t.Fatal(err)
}

func inCI() bool { return os.Getenv("CI") == "true" }

// Name returns a fresh name, lower case letters, digits and dashes, that suits
// topics, queues, streams and key prefixes alike.
func Name(t testing.TB, prefix string) string {
	t.Helper()
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return strings.ToLower(prefix) + "-" + hex.EncodeToString(random[:])
}
