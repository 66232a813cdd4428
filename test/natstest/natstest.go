// Package natstest moves the leaders of a NATS cluster of three. Only tests import it.
package natstest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// The login of an account with JetStream.
const (
	User     = "bridge"
	Password = "correct horse"
)

const (
	patience = 2 * time.Minute
	system   = "system" // who may depose the leader of JetStream
	replicas = 3        // of each stream: one a server
)

// Cluster is one of three servers. Its methods return when the stream has a leader again
// that all replicas follow. They are called from the test's own goroutine.
type Cluster struct {
	t       testing.TB
	servers []*testenv.Server
	url     string
	nc      *natsgo.Conn // on whichever server runs
	system  *natsgo.Conn
	js      jetstream.JetStream
	other   string // a stream, and its subject, that the users of the cluster do not know
}

// New starts a cluster, which ends with the test.
func New(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, other: testenv.Name(t, "other"), servers: testenv.StartNATSCluster(t, `accounts {
		$SYS {users: [{user: `+system+`, password: "`+Password+`"}]}
		orders {jetstream: enabled, users: [{user: `+User+`, password: "`+Password+`"}]}}`)}
	var urls []string
	for _, server := range c.servers {
		urls = append(urls, server.URL())
	}
	c.url = strings.Join(urls, ",")
	c.nc, c.system = c.connect(User), c.connect(system)
	var err error
	c.js, err = jetstream.New(c.nc)
	require.NoError(t, err)
	c.Stream(c.other)
	return c
}

func (c *Cluster) connect(user string) *natsgo.Conn {
	c.t.Helper()
	nc, err := natsgo.Connect(c.url, natsgo.UserInfo(user, Password), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	require.NoError(c.t, err)
	c.t.Cleanup(nc.Close)
	return nc
}

// URL is that of all servers, with commas.
func (c *Cluster) URL() string { return c.url }

// JetStream is a client that finds a server which runs.
func (c *Cluster) JetStream() jetstream.JetStream { return c.js }

// Stream makes a stream, with a replica on each server, for the subject that is its name.
func (c *Cluster) Stream(name string) {
	c.t.Helper()
	config := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: replicas}
	require.EventuallyWithT(c.t, func(collect *assert.CollectT) { // A server that has just begun may not count as a peer yet.
		_, err := c.js.CreateStream(c.t.Context(), config)
		require.NoError(collect, err)
	}, time.Minute, 100*time.Millisecond)
}

// leader is who leads the stream; "" if nobody does, or too few replicas follow.
func (c *Cluster) leader(stream string, following int) string {
	s, err := c.js.Stream(c.t.Context(), stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return ""
	}
	for _, replica := range s.CachedInfo().Cluster.Replicas {
		if replica.Current {
			following--
		}
	}
	if following > 0 {
		return ""
	}
	return s.CachedInfo().Cluster.Leader
}

// await waits until a leader of the stream is followed by so many replicas.
func (c *Cluster) await(stream string, following int) (leader string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		leader = c.leader(stream, following)
		return leader != ""
	}, patience, 20*time.Millisecond)
	return leader
}

// Depose has another server elected, as an operator does before work on one.
func (c *Cluster) Depose(stream string) {
	c.t.Helper()
	old := c.await(stream, replicas-1)
	require.Eventually(c.t, func() bool {
		leader := c.leader(stream, replicas-1)
		if leader == old {
			_, _ = c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second)
		}
		return leader != "" && leader != old
	}, patience, 20*time.Millisecond)
}

// DeposeBoth deposes JetStream's own leader, too.
func (c *Cluster) DeposeBoth(stream string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		_, err := c.system.Request("$JS.API.META.LEADER.STEPDOWN", nil, time.Second)
		return err == nil
	}, patience, 20*time.Millisecond)
	c.Depose(stream)
}

// Kill kills the server that leads, and starts it again when another one does.
func (c *Cluster) Kill(stream string) {
	c.t.Helper()
	c.end(stream, (*testenv.Server).Kill)
}

// Stop is [Cluster.Kill], but asks the server to end.
func (c *Cluster) Stop(stream string) {
	c.t.Helper()
	c.end(stream, (*testenv.Server).Stop)
}

func (c *Cluster) end(stream string, how func(*testenv.Server)) {
	c.t.Helper()
	old := c.await(stream, replicas-1)
	server := c.servers[slices.IndexFunc(c.servers, func(s *testenv.Server) bool { return s.Addr() == old })]
	how(server)
	require.Eventually(c.t, func() bool {
		leader := c.leader(stream, replicas-2)
		return leader != "" && leader != old
	}, patience, 20*time.Millisecond)
	server.Start()
	c.await(stream, replicas-1)
}

// KillAll kills all servers at once, and starts them again.
func (c *Cluster) KillAll(stream string) {
	c.t.Helper()
	var all sync.WaitGroup
	for _, server := range c.servers {
		all.Go(server.Kill)
	}
	all.Wait()
	for _, server := range c.servers {
		server.Start()
	}
	c.await(stream, replicas-1)
}

// LeaveAlone pauses the servers that do not lead, for at least that long, so that the
// leader's proposals are neither acknowledged nor lost.
func (c *Cluster) LeaveAlone(stream string, atLeast time.Duration) {
	c.t.Helper()
	leader := c.await(stream, replicas-1)
	func() {
		for _, server := range c.servers {
			if server.Addr() != leader {
				server.Pause()
				defer server.Resume()
			}
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), atLeast)
		defer cancel()
		_, err := c.js.Publish(ctx, c.other, nil)
		require.Error(c.t, err, "there is no leader to answer, or none that may")
	}()
	c.await(stream, replicas-1)
}
