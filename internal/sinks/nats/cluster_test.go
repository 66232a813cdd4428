package nats_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	patience       = 2 * time.Minute
	publishTimeout = 2 * time.Second
)

// cluster is one of three servers. Streams have a replica on each.
type cluster struct {
	broker
	servers []*testenv.Server
	nc      *natsgo.Conn // on whichever server runs
	system  *natsgo.Conn // the same, as who may depose the leader of JetStream
	js      jetstream.JetStream
	other   string // a topic that nobody publishes to but the cluster's own functions
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{other: testenv.Name(t, "other"), servers: testenv.StartNATSCluster(t, `accounts {
		$SYS {users: [{user: system, password: "`+password+`"}]}
		orders {jetstream: enabled, users: [{user: `+user+`, password: "`+password+`"}]}}`)}
	var urls []string
	for _, server := range c.servers {
		urls = append(urls, server.URL())
	}
	c.broker = broker{url: strings.Join(urls, ","), user: user, replicas: len(urls)}
	connect := func(user string) *natsgo.Conn {
		nc, err := natsgo.Connect(c.url, natsgo.UserInfo(user, password), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	c.nc, c.system = connect(user), connect("system")
	var err error
	c.js, err = jetstream.New(c.nc)
	require.NoError(t, err)
	return c
}

// leader is who leads the stream; "" where nobody does, or a replica does not follow.
func (c *cluster) leader(t *testing.T, stream string, replicas int) string {
	t.Helper()
	s, err := c.js.Stream(t.Context(), stream)
	if err != nil {
		return ""
	}
	group := s.CachedInfo().Cluster
	following := slices.DeleteFunc(slices.Clone(group.Replicas), func(p *jetstream.PeerInfo) bool { return !p.Current })
	if len(following) < replicas {
		return ""
	}
	return group.Leader
}

// await waits until a leader of the stream is followed by so many replicas.
func (c *cluster) await(t *testing.T, stream string, replicas int) (leader string) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader = c.leader(t, stream, replicas)
		return leader != ""
	}, patience, 20*time.Millisecond)
	return leader
}

// depose has another server elected, as an operator does before work on one.
func (c *cluster) depose(t *testing.T, stream string) {
	t.Helper()
	old := c.await(t, stream, 2)
	require.Eventually(t, func() bool {
		leader := c.leader(t, stream, 2)
		if leader == old {
			_, _ = c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second)
		}
		return leader != "" && leader != old
	}, patience, 20*time.Millisecond)
}

// deposeBoth deposes JetStream's own leader, too.
func (c *cluster) deposeBoth(t *testing.T, stream string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := c.system.Request("$JS.API.META.LEADER.STEPDOWN", nil, time.Second)
		return err == nil
	}, patience, 20*time.Millisecond)
	c.depose(t, stream)
}

// end kills or stops the server that leads, and starts it again when another one does.
func (c *cluster) end(t *testing.T, stream string, how func(*testenv.Server)) {
	t.Helper()
	old := c.await(t, stream, 2)
	server := c.servers[slices.IndexFunc(c.servers, func(s *testenv.Server) bool { return s.Addr() == old })]
	how(server)
	require.Eventually(t, func() bool {
		leader := c.leader(t, stream, 1)
		return leader != "" && leader != old
	}, patience, 20*time.Millisecond)
	server.Start()
	c.await(t, stream, 2)
}

// killAll kills all servers at once, and starts them again.
func (c *cluster) killAll(t *testing.T, stream string) {
	t.Helper()
	var all sync.WaitGroup
	for _, server := range c.servers {
		all.Go(server.Kill)
	}
	all.Wait()
	for _, server := range c.servers {
		server.Start()
	}
	c.await(t, stream, 2)
}

// pauseFollowers leaves the leader alone for longer than a sink waits: what it proposes is
// neither acknowledged nor lost.
func (c *cluster) pauseFollowers(t *testing.T, stream string) {
	t.Helper()
	leader := c.await(t, stream, 2)
	for _, server := range c.servers {
		if server.Addr() != leader {
			server.Pause()
			defer server.Resume()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*publishTimeout)
	defer cancel()
	_, err := c.js.Publish(ctx, c.other, nil)
	require.Error(t, err)
}

// TestMovingLeaders has a stream of three replicas whose leader is deposed, killed and left
// alone under load. What it has proposed by then is not answered, and may be stored.
func TestMovingLeaders(t *testing.T) {
	t.Parallel()
	c, topic := newCluster(t), testenv.Name(t, "topic")
	c.MakeTopic(t, topic, sinktest.TopicOptions{})
	c.MakeTopic(t, c.other, sinktest.TopicOptions{})
	stream := streamOf(topic)
	depose, deposeBoth := func() { c.depose(t, stream) }, func() { c.deposeBoth(t, stream) }
	kill, stop := func() { c.end(t, stream, (*testenv.Server).Kill) }, func() { c.end(t, stream, (*testenv.Server).Stop) }
	killAll, alone := func() { c.killAll(t, stream) }, func() { c.pauseFollowers(t, stream) }
	sinktest.MovingLeaders(t, c, topic, sinktest.Options{PublishTimeout: publishTimeout},
		depose, kill, deposeBoth, alone, stop, depose, killAll, depose, stop, deposeBoth, alone, kill, depose)
}
