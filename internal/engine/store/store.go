package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Limits of one script, so that none blocks Redis for long.
const (
	// MaxBatch limits the messages of one script.
	MaxBatch = 500
	// MaxBatchBytes limits the bytes of stored messages of one script, unless
	// it is a single message.
	MaxBatchBytes = 1 << 20
	// BodiesAtOnce is how many stored messages, which may be large, one command reads.
	BodiesAtOnce = 8
	// mostTags limits the tags of the messages of one script, unless it is a single
	// message.
	mostTags = 200
	// Tombstone is how long Redis remembers a cancel or reschedule: longer than
	// all runs of a call may take.
	Tombstone = 60 * time.Second
	// MaxCall is how long all runs of a call may take together.
	MaxCall = 30 * time.Second
	// DefaultTimeout is how long one run of a script may take.
	DefaultTimeout = 2 * time.Second
)

// What the packages below define and callers of this one need.
type (
	// Durability is how certain an effect must be.
	Durability = conn.Durability
	// Layout is how a queue is spread over its shards.
	Layout = layout.Layout
	// Loss is what Redis has lost of a queue.
	Loss = layout.Loss
)

// What may be lost.
const (
	LostQueue  = layout.LostQueue
	LostShards = layout.LostShards
	LostLayout = layout.LostLayout
)

// How long a confirmation may take. With everysec, Redis syncs its disk only once a second.
const (
	replicaWait = time.Second
	fsyncWait   = 3 * time.Second
)

// ByReplicas asks that many replicas to confirm within a second.
func ByReplicas(n int) Durability { return Durability{Replicas: n, Timeout: replicaWait} }

// ByFsync asks the primary to confirm within three seconds that it is on its disk.
func ByFsync() Durability { return Durability{Fsync: true, Timeout: fsyncWait} }

// ErrNoLayout is returned for a queue that no bridge and no command has made yet.
var ErrNoLayout = layout.ErrNoLayout

// MaxShards limits the shards of a queue.
const MaxShards = layout.MaxShards

// Queue is one delay queue in Redis. Callers use one of its views. Queue and
// views are safe for concurrent use, own no goroutine and no connection, and
// need no Close.
type Queue struct{ *core }

// New returns the queue of that name; it does no I/O. A run of a script takes
// at most [DefaultTimeout].
func New(rdb redis.UniversalClient, prefix, name string) *Queue {
	return NewWithTimeout(rdb, prefix, name, DefaultTimeout)
}

// NewWithTimeout is [New] with another limit for a run of a script.
func NewWithTimeout(rdb redis.UniversalClient, prefix, name string, timeout time.Duration) *Queue {
	c, queue := conn.NewConfirmer(conn.New(rdb, timeout)), keys.Queue{Prefix: prefix, Name: name}
	clocks := clock.New(c.Conn)
	return &Queue{&core{keys: queue, conn: c, clocks: clocks, layouts: layout.NewRegistry(c, &clocks.Queue, queue)}}
}

// WithBatcher makes the queue send its quiet runs through b, whose client must
// be the queue's, and returns the queue. Call it before the queue is used.
func (q *Queue) WithBatcher(b *conn.Batcher) *Queue {
	q.conn.SetBatcher(b)
	return q
}

// Layouts returns the registry of the queue's layout.
func (q *Queue) Layouts() *layout.Registry { return q.layouts }

// forgetAfter is how long earlier layouts are kept after they have drained: as
// long as a repeated run may ask them what the first run did.
const forgetAfter = Tombstone + MaxCall

// NewKeeper returns a keeper of the queue's layout; it does no I/O.
func (q *Queue) NewKeeper() *layout.Keeper { return layout.NewKeeper(q.layouts, forgetAfter) }

// For the packages with views of their own, see the package comment.

// Run executes a script at most once, on the node that holds its keys.
func (q *Queue) Run(ctx context.Context, s *scripts.Script, keys []string, args ...any) (*redis.Cmd, error) {
	return q.conn.Run(ctx, s, keys, args...)
}

// RunDurably executes a script at most once. The error is [ErrNotDurable], beside the answer, unless its effect is as durable as asked.
// Its key is a hash that has a field epoch then, or each run writes it.
func (q *Queue) RunDurably(ctx context.Context, d Durability, s *scripts.Script, key string, args ...any) (*redis.Cmd, error) {
	cmd, err := q.confirmAs(ctx, d, key, s, key, args...)
	if errors.Is(err, errUnconfirmed) {
		err = fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return cmd, err
}

// Redis is the client for a call within ctx.
func (q *Queue) Redis(ctx context.Context) redis.UniversalClient { return q.conn.Client(ctx) }

// Repeat calls a read, or an idempotent write, until it has an answer or ctx ends: then
// its error is [ErrUnavailable]. If a shard refuses it, it reconciles the layout, see
// [layout.Layout.Refused].
func (q *Queue) Repeat(ctx context.Context, do func(*Layout) error) error { return q.repeat(ctx, do) }

// Repeat is [Queue.Repeat] for reads with a result.
func Repeat[T any](ctx context.Context, q *Queue, read func(*Layout) (T, error)) (result T, err error) {
	err = q.repeat(ctx, func(l *Layout) (err error) {
		result, err = read(l)
		return err
	})
	return result, err
}

// Topics knows the topics that the queue accepts, by its layout.
type Topics struct{ queue *Queue }

// Topics returns the queue's Topics.
func (q *Queue) Topics() Topics { return Topics{q} }

// Known returns those of the layout in use, or all topics before one was loaded. It makes no call.
func (t Topics) Known() message.Topics {
	if l := t.queue.layouts.InUse(); l != nil {
		return l.Rules.Topics
	}
	return nil
}

// Ask returns those in force now.
func (t Topics) Ask(ctx context.Context) (message.Topics, error) {
	l, err := t.queue.LoadLayout(ctx)
	if err != nil {
		return nil, err
	}
	return l.Rules.Topics, nil
}
