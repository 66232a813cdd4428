package testenv

import (
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// Sentinel is a private Redis primary with two replicas and three sentinels.
// The test's end kills them. Methods that find or kill a
// server fail the test at once, the others report with t.Error.
type Sentinel struct {
	t     testing.TB
	group *service.Sentinel
}

// StartSentinel starts one primary, two replicas and three sentinels. The
// lines are appended to the configuration of the data nodes.
func StartSentinel(t testing.TB, config ...string) *Sentinel {
	t.Helper()
	group, err := service.StartSentinel(t.Context(), config...)
	if err != nil {
		missing(t, err)
	}
	closeAtEnd(t, group)
	return &Sentinel{t: t, group: group}
}

// StartOneSentinel starts a sentinel by itself, with these lines of configuration.
func StartOneSentinel(t testing.TB, config ...string) *Server {
	t.Helper()
	server, err := service.StartOneSentinel(t.Context(), config...)
	return private(t, server, err)
}

// Addrs are the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return s.group.Addrs() }

// Master is the name under which the sentinels know the primary.
func (s *Sentinel) Master() string { return service.SentinelMaster }

// Primary is the present primary.
func (s *Sentinel) Primary() *Server {
	s.t.Helper()
	server, err := s.group.Primary(s.t.Context())
	return one(s.t, server, err)
}

// Nodes are the data nodes, whatever their role.
func (s *Sentinel) Nodes() []*Server { return all(s.t, s.group.Nodes()) }

// KillPrimary kills the primary; Start brings it back.
func (s *Sentinel) KillPrimary() *Server {
	s.t.Helper()
	server, err := s.group.KillPrimary(s.t.Context())
	return one(s.t, server, err)
}

// AwaitFailover returns when the sentinels agree on a primary that runs and all
// nodes that run follow it, those that came back among them.
func (s *Sentinel) AwaitFailover() {
	s.t.Helper()
	check(s.t, s.group.AwaitFailover(s.t.Context()))
}

// Cluster is a private Redis Cluster of three primaries with a replica each.
// The test's end kills it. Methods that find or kill a
// server fail the test at once, the others report with t.Error.
type Cluster struct {
	t     testing.TB
	group *service.Cluster
}

// StartCluster starts three primaries and three replicas. The lines are
// appended to their configuration.
func StartCluster(t testing.TB, config ...string) *Cluster {
	t.Helper()
	group, err := service.StartCluster(t.Context(), config...)
	if err != nil {
		missing(t, err)
	}
	closeAtEnd(t, group)
	return &Cluster{t: t, group: group}
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return c.group.Addrs() }

// PrimaryOf is the node that holds the key.
func (c *Cluster) PrimaryOf(key string) *Server {
	c.t.Helper()
	server, err := c.group.PrimaryOf(c.t.Context(), key)
	return one(c.t, server, err)
}

// Nodes are all nodes, whatever their role.
func (c *Cluster) Nodes() []*Server { return all(c.t, c.group.Nodes()) }

// KillPrimaryOf kills the node that holds the key; Start brings it back.
func (c *Cluster) KillPrimaryOf(key string) *Server {
	c.t.Helper()
	server, err := c.group.KillPrimaryOf(c.t.Context(), key)
	return one(c.t, server, err)
}

// AwaitFailover returns when all nodes that run agree on who holds which slot,
// and the replicas among them are in sync.
func (c *Cluster) AwaitFailover() {
	c.t.Helper()
	check(c.t, c.group.AwaitFailover(c.t.Context()))
}

// MigrateSlotOf begins to move the key's slot to another primary. Until Finish
// the cluster answers for that slot with ASK and TRYAGAIN.
func (c *Cluster) MigrateSlotOf(key string) *Migration {
	c.t.Helper()
	slot, err := c.group.Slot(c.t.Context(), key)
	fatal(c.t, err)
	migration, err := c.group.MigrateSlot(c.t.Context(), slot, nil)
	fatal(c.t, err)
	return &Migration{t: c.t, migration: migration}
}

// Migration is a slot on its way.
type Migration struct {
	t         testing.TB
	migration *service.Migration
}

// Move moves up to count keys, and returns how many there were.
func (m *Migration) Move(count int) int {
	m.t.Helper()
	moved, err := m.migration.Move(m.t.Context(), count)
	check(m.t, err)
	return moved
}

// Finish moves what is left and gives the slot to its new owner.
func (m *Migration) Finish() {
	m.t.Helper()
	check(m.t, m.migration.Finish(m.t.Context()))
}

func closeAtEnd(t testing.TB, group interface {
	Log() string
	Close()
},
) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ends of the logs:\n%s", group.Log())
		}
		group.Close()
	})
}

func one(t testing.TB, server *service.Server, err error) *Server {
	t.Helper()
	fatal(t, err)
	return &Server{t: t, server: server}
}

func all(t testing.TB, servers []*service.Server) []*Server {
	t.Helper()
	list := make([]*Server, len(servers))
	for i, server := range servers {
		list[i] = &Server{t: t, server: server}
	}
	return list
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
