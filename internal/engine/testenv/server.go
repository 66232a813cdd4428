package testenv

import (
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// How much of a private server's log a failed test shows.
const logShown = 4 << 10

// Server is a private server of one test: its own process, scratch folder and
// address, which all stay the same over Kill, Stop and Start. The test's end
// kills it. Methods report failures with t.Error, so that they may be called
// from any goroutine of the test.
type Server struct {
	t      testing.TB
	server *service.Server
}

// StartRedis starts a Redis without persistence. Extra arguments of
// redis-server override the defaults: "--appendonly", "yes".
func StartRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	server, err := service.StartRedis(t.Context(), args...)
	return private(t, server, err)
}

// StartNATS starts a NATS server with JetStream; extraConfig is appended to
// its configuration file.
func StartNATS(t testing.TB, extraConfig string) *Server {
	t.Helper()
	server, err := service.StartNATS(t.Context(), extraConfig)
	return private(t, server, err)
}

// StartNATSCluster starts three NATS servers that know each other, and returns when one of
// them leads JetStream. The name of each in the cluster is its address; extraConfig is
// appended to the configuration of each.
func StartNATSCluster(t testing.TB, extraConfig string) []*Server {
	t.Helper()
	servers, err := service.StartNATSCluster(t.Context(), extraConfig)
	if err != nil {
		missing(t, err)
	}
	nodes := make([]*Server, len(servers))
	for i, server := range servers {
		nodes[i] = private(t, server, nil)
	}
	return nodes
}

// StartRabbitMQ starts a RabbitMQ node; extraConfig is appended to its
// rabbitmq.conf. A line "# plugins: rabbitmq_auth_mechanism_ssl" enables
// plugins.
func StartRabbitMQ(t testing.TB, extraConfig string) *Server {
	t.Helper()
	server, err := service.StartRabbitMQ(t.Context(), extraConfig)
	return private(t, server, err)
}

// StartKafka starts a single Kafka broker that is its own controller and
// creates no topics by itself; extraProperties are appended to its
// server.properties and win over ours.
func StartKafka(t testing.TB, extraProperties string) *Server {
	t.Helper()
	server, err := service.StartKafka(t.Context(), extraProperties)
	return private(t, server, err)
}

// StartKafkaFollower runs a second broker under the controller of the first one. Topics get
// replicas on it only where they are assigned to node 2.
func StartKafkaFollower(t testing.TB, first *Server, extraProperties string) *Server {
	t.Helper()
	server, err := service.StartKafkaFollower(t.Context(), first.server, extraProperties)
	return private(t, server, err)
}

func private(t testing.TB, server *service.Server, err error) *Server {
	t.Helper()
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := server.Log()
			t.Logf("end of the log of %s:\n%s", server.Addr(), log[max(0, len(log)-logShown):])
		}
		server.Close()
	})
	return &Server{t: t, server: server}
}

// URL is where clients connect, in the form of the shared server's URL.
func (s *Server) URL() string { return s.server.URL() }

// Addr is the listener's host and port.
func (s *Server) Addr() string { return s.server.Addr() }

// Dir is the scratch folder with the configuration and the data.
func (s *Server) Dir() string { return s.server.Dir() }

// Log returns the end of what the server printed, over all its runs.
func (s *Server) Log() string { return s.server.Log() }

// Own writes a file of the scratch folder, which belongs to who runs the server, and
// returns its path.
func (s *Server) Own(name string, content []byte) string {
	s.t.Helper()
	path, err := s.server.Own(name, content)
	s.check(err)
	return path
}

// RabbitEval evaluates an Erlang expression in a RabbitMQ: for what no client of it
// can do.
func (s *Server) RabbitEval(expression string) {
	s.t.Helper()
	s.check(s.server.RabbitEval(s.t.Context(), expression))
}

// Kill sends SIGKILL to all of the server's processes and returns when they
// are gone. A paused server can be killed, too.
func (s *Server) Kill() { s.check(s.server.Kill()) }

// Stop ends the server gracefully and returns when it is gone.
func (s *Server) Stop() { s.check(s.server.Stop()) }

// Start runs the server again after Kill or Stop, on the same address and
// data, and returns when it takes requests.
func (s *Server) Start() { s.check(s.server.Start(s.t.Context())) }

// Pause freezes the server; its connections stay open and silent.
func (s *Server) Pause() { s.check(s.server.Pause()) }

// Resume ends a Pause.
func (s *Server) Resume() { s.check(s.server.Resume()) }

func (s *Server) check(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Error(err)
	}
}
