package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// ErrMissing says that a server's program is not on this machine and could
// not be fetched.
var ErrMissing = errors.New("program is missing")

// Server is one server with a fixed address and a scratch folder; it may be
// killed and started again on the same data. Its methods may be called
// concurrently.
type Server struct {
	name string
	host Host
	url  string
	dir  string
	port int
	bus  int // the port for its peers, see reserveBus
	argv []string
	env  []string
	user *syscall.Credential // who runs it; nil is who runs us
	stop syscall.Signal      // asks it to end
	// ready succeeds once the server takes requests; started is the log's
	// size before this run, so that an earlier run's lines do not count.
	ready func(ctx context.Context, started int64) error

	free func() // gives the port back
	mu   sync.Mutex
	run  *process // nil while the server is down
}

// newServer makes the scratch folder and reserves a port; the caller fills in
// the command.
func newServer(ctx context.Context, name string) (*Server, error) {
	host, err := HostOf(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("place %s: %w", name, err)
	}
	dir, err := os.MkdirTemp("", "delaybridge-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	port, free, err := ReservePort()
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &Server{name: name, host: host, dir: dir, port: port, env: os.Environ(), stop: syscall.SIGTERM, free: free}, nil
}

// reserveBus reserves a second port, for the server's peers.
func (s *Server) reserveBus() error {
	bus, freeBus, err := ReservePort()
	if err != nil {
		return err
	}
	freePort := s.free
	s.bus, s.free = bus, func() { freePort(); freeBus() }
	return nil
}

// URL is where clients connect: redis://, nats://, amqp:// with the guest
// user, postgres://, for MariaDB what its driver takes, or for Kafka the plain
// host and port.
func (s *Server) URL() string { return s.url }

// Addr is the listener's host and port.
func (s *Server) Addr() string { return s.host.At(s.port) }

// Dir is the scratch folder, which [Server.Close] removes.
func (s *Server) Dir() string { return s.dir }

// Own writes a file of the scratch folder, which belongs to who runs the server and is
// read by nobody else, and returns its path.
func (s *Server) Own(name string, content []byte) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", err
	}
	if s.user == nil {
		return path, nil
	}
	return path, os.Chown(path, int(s.user.Uid), int(s.user.Gid))
}

// Log returns the end of what the server printed, over all its runs.
func (s *Server) Log() string { return readTail(logPath(s.dir)) }

// Start runs the server and returns when it takes requests. It is an error if
// it runs already.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return fmt.Errorf("start %s: it runs already", s.name)
	}
	var started int64
	if info, err := os.Stat(logPath(s.dir)); err == nil {
		started = info.Size()
	}
	run, err := s.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = run.awaitReady(ctx, func(ctx context.Context) error { return s.ready(ctx, started) })
	if err != nil {
		run.release(true)
		return fmt.Errorf("start %s: %w; the end of its log:\n%s", s.name, err, end(s.Log()))
	}
	s.run = run
	return nil
}

// Kill sends SIGKILL to all of the server's processes and returns when they
// are gone. The data stays.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL, true) }

// Stop asks the server to end and returns when it has. The data stays.
func (s *Server) Stop() error { return s.end(s.stop, false) }

func (s *Server) end(sig syscall.Signal, group bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	err := s.run.signal(sig, group)
	if err == nil && !s.run.ended(stopTimeout) {
		err = fmt.Errorf("%s did not end within %v", s.name, stopTimeout)
	}
	s.run.release(true)
	s.run = nil
	return err
}

// Pause stops all of the server's processes where they are, and returns when
// they have stopped; connections stay.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return fmt.Errorf("pause %s: it does not run", s.name)
	}
	if err := s.run.pause(); err != nil {
		return fmt.Errorf("pause %s: %w", s.name, err)
	}
	return nil
}

// Resume ends a [Server.Pause].
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return fmt.Errorf("resume %s: it does not run", s.name)
	}
	return s.run.signal(syscall.SIGCONT, true)
}

// Close kills the server and removes its folder.
func (s *Server) Close() {
	_ = s.Kill()
	s.cleanUp()
	_ = os.RemoveAll(s.dir)
	s.free()
}

// cleanUp runs what the supervisor runs where we were killed.
func (s *Server) cleanUp() {
	script := exec.Command("sh", "./"+cleanupScript) //nolint:noctx // it ends at once
	script.Dir = s.dir
	if _, err := os.Stat(filepath.Join(s.dir, cleanupScript)); err == nil {
		_ = script.Run()
	}
}

// start runs a server that was just made, and cleans up if it does not come up.
func (s *Server) start(ctx context.Context) (*Server, error) {
	if err := s.Start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// abandon removes what newServer made, when the command cannot be prepared.
func (s *Server) abandon(err error) (*Server, error) {
	s.Close()
	return nil, err
}
