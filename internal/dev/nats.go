package dev

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsStart is how long the server may take, with streams to recover.
const natsStart = 30 * time.Second

// natsServer is a NATS server in this process.
type natsServer struct{ *server.Server }

func startNATS(addr, dir string, logger *slog.Logger) (*natsServer, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("split address: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("read port: %w", err)
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "delaybridge-dev", Host: host, Port: number,
		JetStream: true, StoreDir: dir, NoSigs: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, err
	}
	complaints := &complaints{logger: logger, fatal: make(chan error, 1)}
	s.SetLoggerV2(complaints, false, false, false)
	s.Start()
	n := &natsServer{s}
	if err := n.awaitReady(complaints.fatal); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// awaitReady waits until the server listens, or says why it never will.
func (s *natsServer) awaitReady(fatal <-chan error) error {
	const step = 20 * time.Millisecond
	for began := time.Now(); time.Since(began) < natsStart; {
		if s.ReadyForConnections(step) {
			return nil
		}
		select {
		case err := <-fatal:
			return err
		default:
		}
	}
	return fmt.Errorf("not ready within %v", natsStart)
}

func (s *natsServer) close() {
	s.Shutdown()
	s.WaitForShutdown()
}

// complaints passes on what the server finds wrong, and drops the rest.
type complaints struct {
	logger *slog.Logger
	// fatal gets what keeps the server from running.
	fatal chan error
}

func (c *complaints) Noticef(string, ...any) {}
func (c *complaints) Debugf(string, ...any)  {}
func (c *complaints) Tracef(string, ...any)  {}

func (c *complaints) Warnf(format string, args ...any) {
	c.logger.Debug("nats server", "event", "nats", "text", fmt.Sprintf(format, args...))
}

func (c *complaints) Errorf(format string, args ...any) {
	c.logger.Warn("nats server", "event", "nats", "text", fmt.Sprintf(format, args...))
}

// Fatalf does not end the program.
func (c *complaints) Fatalf(format string, args ...any) {
	select {
	case c.fatal <- fmt.Errorf(format, args...):
	default: // The first cause counts.
	}
}
