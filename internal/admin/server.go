// Package admin serves HTTP for those who operate the bridge: the API, the console,
// profiles, /livez, /readyz and /metrics on the listener admin.listen, and the last three, and
// never more, on admin.probes.
//
// It knows nothing of Redis or brokers: functions given to it say how we are.
// It should start first and stop last, so that a drain can be watched.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of a connection. A scrape may wait 2 s for Redis; the API sets limits of its
// own for what takes longer.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 15 * time.Second
	idleTimeout  = 60 * time.Second
	headerMax    = 16 << 10 // bytes
)

// Config says what a [Server] serves, and where.
type Config struct {
	// Listen and Probes are the addresses, host:port. Empty is no listener.
	Listen, Probes string
	// Bound, where set, is served instead of binding Listen. From Start on it is
	// the server's, and Stop closes it.
	Bound net.Listener
	// Live returns what hangs, nil if nothing does.
	Live func() error
	// Ready returns how we are. It must not wait for anything.
	Ready func() Readiness
	// Metrics serves /metrics.
	Metrics http.Handler
	// API serves what is below /api/ on Listen.
	API API
	// Dev, where set, serves what is below /dev/ on Listen.
	Dev http.Handler
	// Profiles serves what is below /debug/pprof/ on Listen.
	Profiles http.Handler
	// Console serves all else on Listen.
	Console http.Handler
	// TLS, if not nil, is that of Listen.
	TLS    *tls.Config
	Logger *slog.Logger
}

// API is what the server needs to know of the API.
type API interface {
	http.Handler
	// Close ends what would not end by itself.
	Close()
}

// Server owns one goroutine a listener, from Start to Stop, besides those of
// its connections.
type Server struct {
	config    Config
	listeners []*listener
	serving   sync.WaitGroup
}

// listener is one address with what is served there.
type listener struct {
	key, address string
	server       *http.Server
	bound        net.Listener
}

// New returns a server that is not yet started.
func New(config Config) *Server {
	s := &Server{config: config}
	for _, l := range []*listener{{key: "admin.listen", address: config.Listen}, {key: "admin.probes", address: config.Probes}} {
		l.server = &http.Server{
			Handler:     s.probes(),
			ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerMax,
			ErrorLog: slog.NewLogLogger(config.Logger.Handler(), slog.LevelWarn),
		}
		s.listeners = append(s.listeners, l)
	}
	main := s.listeners[0].server
	mux := s.probes()
	mux.Handle("/api/", config.API)
	if config.Dev != nil {
		mux.Handle("/dev/", config.Dev)
	}
	mux.Handle("/debug/pprof/", config.Profiles)
	mux.Handle("/", config.Console)
	main.Handler, main.TLSConfig = mux, config.TLS
	main.RegisterOnShutdown(config.API.Close)
	return s
}

// Start binds the addresses and returns; from then on they are served. The
// error names the address that cannot be bound and its key in the configuration.
func (s *Server) Start(ctx context.Context) error {
	s.listeners[0].bound = s.config.Bound
	for _, l := range s.listeners {
		if l.address == "" || l.bound != nil {
			continue
		}
		var err error
		if l.bound, err = new(net.ListenConfig).Listen(ctx, "tcp", l.address); err != nil {
			return errors.Join(fmt.Errorf("listen on %s (%s): %w", l.address, l.key, err), s.unbind())
		}
	}
	for _, l := range s.listeners {
		if l.bound == nil {
			continue
		}
		s.serving.Go(func() {
			if err := l.serve(); !errors.Is(err, http.ErrServerClosed) {
				s.config.Logger.Error("admin listener ended", "event", "admin", "key", l.key, "err", err)
			}
		})
		s.config.Logger.Info("admin listener", "event", "admin", "key", l.key, "address", l.bound.Addr().String())
	}
	return nil
}

// serve serves until the server is stopped.
func (l *listener) serve() error {
	if l.server.TLSConfig != nil {
		return l.server.ServeTLS(l.bound, "", "")
	}
	return l.server.Serve(l.bound)
}

// unbind gives up what was bound before Start failed.
func (s *Server) unbind() error {
	var errs []error
	for _, l := range s.listeners {
		if l.bound != nil {
			errs = append(errs, l.bound.Close())
			l.bound = nil
		}
	}
	return errors.Join(errs...)
}

// Stop closes the listeners and waits for the requests under way; those that
// are left when ctx ends are cut off, and the error says so. It may be called
// twice, and without Start.
func (s *Server) Stop(ctx context.Context) error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.server.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", l.key, err), l.server.Close())
		}
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

// Addr returns the address that admin.listen is bound to, with the port that
// the system chose for port 0; empty before Start and if there is no listener.
func (s *Server) Addr() string { return s.listeners[0].addr() }

// ProbesAddr is Addr for admin.probes.
func (s *Server) ProbesAddr() string { return s.listeners[1].addr() }

func (l *listener) addr() string {
	if l.bound == nil {
		return ""
	}
	return l.bound.Addr().String()
}
