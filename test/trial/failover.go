package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// failoverLimit is how long a group may take to have another primary.
const failoverLimit = 90 * time.Second

// Failover is the death of a primary, and what came after.
type Failover struct {
	// Killed is when it died, Writable when another node first took a write, as
	// seen by a client of its own, Known when all who may be asked named it: no
	// client finds it before it has asked one that does.
	Killed, Writable, Known time.Time

	group *Group
	dead  *service.Server
}

// Repair starts the dead node again, and returns when it follows the new primary.
func (f *Failover) Repair(ctx context.Context) error {
	return errors.Join(f.dead.Start(ctx), f.group.AwaitFailover(ctx))
}

// ShardKey is a key of the test's own that lives where the shard does.
func (w *World) ShardKey(shard int) string { return fmt.Sprintf("probe:{%s:%d}", w.setup.Queue, shard) }

// KillPrimary kills the primary of a shard, and returns when another node has
// taken its place. Before, the primary is cut off from its replicas for some
// time, so that they miss what it does then.
func (w *World) KillPrimary(ctx context.Context, shard int, cutOff time.Duration) (*Failover, error) {
	key := w.ShardKey(shard)
	primary, err := w.Group.primaryOf(ctx, key)
	if err != nil {
		return nil, err
	}
	if cutOff > 0 {
		if err := cut(ctx, primary, cutOff); err != nil {
			return nil, fmt.Errorf("cut %s off from its replicas: %w", primary.Addr(), err)
		}
	}
	f := &Failover{group: w.Group, dead: primary, Killed: time.Now()}
	if err := primary.Kill(); err != nil {
		return nil, err
	}
	if f.Writable, err = w.Group.writable(ctx, primary, key); err != nil {
		return nil, err
	}
	f.Known, err = w.Group.known(ctx, primary, key)
	return f, err
}

// HangPrimary has the primary of a shard hang for some time.
func (w *World) HangPrimary(ctx context.Context, shard int, d time.Duration) error {
	primary, err := w.Group.primaryOf(ctx, w.ShardKey(shard))
	if err != nil {
		return err
	}
	if err := primary.Pause(); err != nil {
		return err
	}
	return errors.Join(Sleep(ctx, d), primary.Resume())
}

// direct is a client of one node.
func direct(node *service.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: node.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 1,
	})
}

// cut closes the replicas' connections and refuses new ones.
func cut(ctx context.Context, primary *service.Server, cutOff time.Duration) error {
	client := direct(primary)
	defer func() { _ = client.Close() }()
	if err := client.Do(ctx, "acl", "setuser", "default", "-psync", "-sync").Err(); err != nil {
		return err
	}
	if err := client.Do(ctx, "client", "kill", "type", "replica").Err(); err != nil {
		return err
	}
	return Sleep(ctx, cutOff)
}

// writable returns when a node other than the dead one took a write of the key.
func (g *Group) writable(ctx context.Context, dead *service.Server, key string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	var (
		probes sync.WaitGroup
		first  = make(chan time.Time, len(g.Nodes()))
	)
	defer probes.Wait()
	for _, node := range g.Nodes() {
		if node == dead {
			continue
		}
		probes.Go(func() {
			client := direct(node)
			defer func() { _ = client.Close() }()
			for client.Set(ctx, key, "", 0).Err() != nil {
				if Sleep(ctx, 10*time.Millisecond) != nil {
					return
				}
			}
			first <- time.Now()
			cancel()
		})
	}
	<-ctx.Done()
	probes.Wait()
	select {
	case at := <-first:
		return at, nil
	default:
		return time.Time{}, fmt.Errorf("nobody took the place of %s: %w", dead.Addr(), ctx.Err())
	}
}

// known returns when nobody names the dead node as the key's primary any more.
func (g *Group) known(ctx context.Context, dead *service.Server, key string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	for {
		named, err := g.primaryOf(ctx, key)
		if err == nil && named != dead {
			return time.Now(), nil
		}
		if err := Sleep(ctx, 10*time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("%s is still named: %w", dead.Addr(), err)
		}
	}
}

// Sleep waits, but not longer than ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
