package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// viewOf is who holds which slots, as the node sees it, in order.
func viewOf(ctx context.Context, node *Server) (view []redis.ClusterSlot, err error) {
	err = node.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		view, err = client.ClusterSlots(ctx).Result() //nolint:staticcheck // it is the same in Redis and Valkey, and tells the primary
		return err
	})
	slices.SortFunc(view, func(a, b redis.ClusterSlot) int { return a.Start - b.Start })
	return view, err
}

// sameOwners compares the primaries, not the order of the replicas.
func sameOwners(a, b []redis.ClusterSlot) bool {
	return slices.EqualFunc(a, b, func(a, b redis.ClusterSlot) bool {
		return a.Start == b.Start && a.End == b.End && a.Nodes[0].Addr == b.Nodes[0].Addr
	})
}

func (s *Server) clusterInfo(ctx context.Context) (map[string]string, error) {
	fields := map[string]string{}
	err := s.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		text, err := client.ClusterInfo(ctx).Result()
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			fields[name] = value
		}
		return err
	})
	return fields, err
}

// Migration moves one slot from a primary to another. Between its steps the
// cluster is as long as the caller likes in the state in which it answers ASK
// and TRYAGAIN.
type Migration struct {
	// Slot moves from From to To.
	Slot     int
	From, To *Server

	cluster    *Cluster
	fromID, id string
}

// MigrateSlot begins to move a slot to another primary; nil takes any other
// one. No key has moved when it returns.
func (c *Cluster) MigrateSlot(ctx context.Context, slot int, to *Server) (*Migration, error) {
	from, err := c.primaryOfSlot(ctx, slot)
	if err != nil {
		return nil, err
	}
	if to == nil {
		primaries, err := c.Primaries(ctx)
		if err != nil {
			return nil, err
		}
		to = primaries[(slices.Index(primaries, from)+1)%len(primaries)]
	}
	if from == to {
		return nil, errors.New("migrate slot: it is there already")
	}
	m := &Migration{Slot: slot, From: from, To: to, cluster: c}
	if m.fromID, err = nodeID(ctx, from); err != nil {
		return nil, err
	}
	if m.id, err = nodeID(ctx, to); err != nil {
		return nil, err
	}
	if err := m.set(ctx, to, "importing", m.fromID); err != nil {
		return nil, err
	}
	return m, m.set(ctx, from, "migrating", m.id)
}

func (m *Migration) set(ctx context.Context, node *Server, state, id string) error {
	err := node.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.Do(ctx, "cluster", "setslot", m.Slot, state, id).Err()
	})
	if err != nil {
		return fmt.Errorf("set slot %d to %s at %s: %w", m.Slot, state, node.Addr(), err)
	}
	return nil
}

// Move moves up to count keys and returns how many; 0 means that all have
// moved, unless new ones are made.
func (m *Migration) Move(ctx context.Context, count int) (moved int, err error) {
	err = m.From.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		keys, err := client.ClusterGetKeysInSlot(ctx, m.Slot, count).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		moved = len(keys)
		args := []any{"migrate", m.To.host.IP, m.To.port, "", 0, askTimeout.Milliseconds(), "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		return client.Do(ctx, args...).Err()
	})
	return moved, err
}

// Finish moves the keys that are left and gives the slot to its new owner.
func (m *Migration) Finish(ctx context.Context) error {
	for {
		moved, err := m.Move(ctx, 100)
		if err != nil {
			return err
		}
		if moved == 0 {
			break
		}
	}
	primaries, err := m.cluster.Primaries(ctx)
	if err != nil {
		return err
	}
	// The new owner first: the other way round there would be none for a moment.
	for _, node := range append([]*Server{m.To}, primaries...) {
		if err := m.set(ctx, node, "node", m.id); err != nil {
			return err
		}
	}
	return nil
}
