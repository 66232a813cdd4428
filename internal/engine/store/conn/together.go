package conn

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Trip is a run of a script that may travel with others, and its answer.
type Trip struct {
	Script *scripts.Script
	Keys   []string
	Args   []any

	Cmd *redis.Cmd
	Err error
}

// Single is the client of the one node that holds the key, for [Conn.RunTogether];
// nil where it cannot be told.
func (c *Conn) Single(ctx context.Context, key string) *redis.Client { return single(ctx, c.rdb, key) }

func single(ctx context.Context, rdb redis.UniversalClient, key string) *redis.Client {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb
	case *redis.ClusterClient:
		if node, err := rdb.MasterForKey(ctx, key); err == nil {
			return node
		}
	}
	return nil
}

// RunTogether is [Conn.Run] for scripts whose keys are at the node: they go in one
// pipeline, are run in their order, and each has its own answer. Where node is nil,
// they go one after the other.
func (c *Conn) RunTogether(ctx context.Context, node *redis.Client, trips []*Trip) {
	if node == nil || len(trips) == 1 {
		for _, t := range trips {
			t.Cmd, t.Err = c.Run(ctx, t.Script, t.Keys, t.Args...)
		}
		return
	}
	if client, ok := c.Client(ctx).(*redis.Client); ok {
		node = client
	} else if client, ok := c.Patient(ctx, node, 0).(*redis.Client); ok {
		node = client
	}
	pipe(ctx, node, trips)
	for _, t := range trips {
		c.runElsewhere(ctx, t)
	}
}

// runElsewhere runs what did not run at its node, because that has not its keys any more.
func (c *Conn) runElsewhere(ctx context.Context, t *Trip) {
	if redis.HasErrorPrefix(t.Err, "MOVED") || redis.HasErrorPrefix(t.Err, "ASK") || errors.Is(t.Err, redis.ErrClosed) {
		t.Cmd, t.Err = c.Run(ctx, t.Script, t.Keys, t.Args...)
		return
	}
	c.Refresh(ctx, t.Err)
}

// pipe runs the scripts, those that Redis does not know by their source.
func pipe(ctx context.Context, node *redis.Client, trips []*Trip) {
	exec(ctx, node, false, trips)
	var unknown []*Trip
	for _, t := range trips {
		if redis.HasErrorPrefix(t.Err, "NOSCRIPT") {
			unknown = append(unknown, t)
		}
	}
	if len(unknown) > 0 {
		exec(ctx, node, true, unknown)
	}
}

func exec(ctx context.Context, node *redis.Client, bySource bool, trips []*Trip) {
	pipeline := node.Pipeline()
	for _, t := range trips {
		command := t.Script.Command(ctx, bySource, t.Keys, t.Args)
		t.Cmd = command.Cmd
		_ = pipeline.Process(ctx, command)
	}
	_, _ = pipeline.Exec(ctx) // Each command has its error.
	for _, t := range trips {
		if t.Cmd.Val() != nil {
			t.Cmd.SetErr(nil) // It has answered; go-redis blames it for what those behind it met.
		}
		t.Err = Blame(node, t.Cmd.Err())
	}
}
