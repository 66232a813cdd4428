// Package conn runs scripts in Redis: on the node that holds their keys, within
// the caller's deadline, alone, together with others ([Batcher]), or until
// replicas or the disk have confirmed them ([Confirmer]).
package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Conn is how one queue reaches Redis. It is safe for concurrent use, owns no
// goroutine and no connection, and needs no Close.
type Conn struct {
	rdb     redis.UniversalClient
	timeout time.Duration
	batcher *Batcher // nil: quiet runs go alone
}

// New returns a connection whose runs take at most timeout; it does no I/O.
func New(rdb redis.UniversalClient, timeout time.Duration) *Conn {
	// A run whose reply is late must not block longer than its not-after instant.
	if client, ok := rdb.(*redis.Client); ok {
		rdb = client.WithTimeout(timeout)
	}
	return &Conn{rdb: rdb, timeout: timeout}
}

// SetBatcher sends quiet runs through b, whose client must be the connection's
// own. Call it before the connection is used.
func (c *Conn) SetBatcher(b *Batcher) { c.batcher = b }

// Timeout is how long a run may take.
func (c *Conn) Timeout() time.Duration { return c.timeout }

// Client returns the client for a call within ctx. go-redis may check ctx only
// before it sends, so a near deadline becomes the timeout of the connection.
func (c *Conn) Client(ctx context.Context) redis.UniversalClient {
	client, ok := c.rdb.(*redis.Client)
	if !ok {
		return c.rdb
	}
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); ok && left < c.timeout {
		return client.WithTimeout(max(left, time.Millisecond))
	}
	return client
}

// Node is the client of the node that holds the key, and whether that is one of
// several.
func (c *Conn) Node(ctx context.Context, key string) (node redis.UniversalClient, several bool, err error) {
	node, err = Node(ctx, c.rdb, key)
	return node, node != c.rdb, err
}

// Node is the client of the node that holds the key. WAIT has no key, so a
// cluster client would send it anywhere.
func Node(ctx context.Context, rdb redis.UniversalClient, key string) (redis.UniversalClient, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb, nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w of %s: %w", rediserr.ErrNoNode, key, err)
	}
	return node, nil
}

// Patient returns the node's client with a timeout for a run and the wait after it.
func (c *Conn) Patient(ctx context.Context, node redis.UniversalClient, wait time.Duration) redis.UniversalClient {
	client, ok := node.(*redis.Client)
	if !ok {
		return node
	}
	limit := c.timeout + wait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return client.WithTimeout(max(limit, time.Millisecond))
}

// Refresh reads a Cluster's slots again after an error that they may have
// caused: go-redis does so by itself only after a redirection. It reads at most
// five times a second over all callers.
func (c *Conn) Refresh(ctx context.Context, err error) {
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok || err == nil || ctx.Err() != nil {
		return
	}
	if class := rediserr.Classify(err); class == rediserr.NotRun || class == rediserr.Lost {
		cluster.ReloadState(ctx)
	}
}

// Run executes the script at most once. If Redis does not know it, after SCRIPT
// FLUSH or a failover, Run sends the source.
func (c *Conn) Run(ctx context.Context, s *scripts.Script, keys []string, args ...any) (*redis.Cmd, error) {
	rdb := c.Client(ctx)
	node, err := Node(ctx, rdb, keys[0])
	if err != nil {
		return nil, err
	}
	command := s.Command(ctx, false, keys, args)
	err = rdb.Process(ctx, command)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		command = s.Command(ctx, true, keys, args)
		err = rdb.Process(ctx, command)
	}
	c.Refresh(ctx, err)
	return command.Cmd, Blame(node, err)
}

// Blame adds the server's address to an error that says only that time ran out.
func Blame(node redis.UniversalClient, err error) error {
	client, ok := node.(*redis.Client)
	if !ok || !rediserr.IsLateness(err) {
		return err
	}
	return fmt.Errorf("%s: %w", client.Options().Addr, err)
}

// Trip is a run of a script that may travel with others, and its answer.
type Trip struct {
	Script *scripts.Script
	Keys   []string
	Args   []any

	Cmd *redis.Cmd
	Err error
}

// Single is the client of the one node that holds the key, for [Conn.RunTogether];
// nil if that is not known.
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
// they run one after the other.
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

// runElsewhere runs a script that did not run at its node because the node no longer has its keys.
func (c *Conn) runElsewhere(ctx context.Context, t *Trip) {
	if redis.HasErrorPrefix(t.Err, "MOVED") || redis.HasErrorPrefix(t.Err, "ASK") || errors.Is(t.Err, redis.ErrClosed) {
		t.Cmd, t.Err = c.Run(ctx, t.Script, t.Keys, t.Args...)
		return
	}
	c.Refresh(ctx, t.Err)
}

// pipe runs the scripts, by their source if Redis does not know them.
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
			t.Cmd.SetErr(nil) // It was answered; go-redis gives it the error of a later command.
		}
		t.Err = Blame(node, t.Cmd.Err())
	}
}
