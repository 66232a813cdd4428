package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of one script, so that none blocks Redis for long.
const (
	// MaxBatch is how many messages one script handles at the most.
	MaxBatch = 1000
	// MaxBatchBytes is how many bytes of stored messages one script handles at
	// the most, unless it is a single message.
	MaxBatchBytes = 1 << 20
	// tombstone is how long a cancel or reschedule is remembered: longer than all
	// runs of a call may take.
	tombstone = 60 * time.Second
	// MaxCall is how long all runs of a call may take together.
	MaxCall = 30 * time.Second
	// DefaultTimeout is how long one run of a script may take.
	DefaultTimeout = 2 * time.Second
)

// Queue is one delay queue in Redis. It is safe for concurrent use, owns no
// goroutine and no connection, and needs no Close.
type Queue struct {
	rdb     redis.UniversalClient
	prefix  string
	name    string
	timeout time.Duration
	clock   clock
	clocks  sync.Map // of the nodes of a Cluster: redis.UniversalClient to *clock
	layout  atomic.Pointer[Layout]
	batcher *Batcher               // nil: quiet runs go alone
	stale   atomic.Pointer[Layout] // a layout that a shard has refused
	known   sync.Map               // which node knows which script, for durable runs
	syncs   sync.Map               // the clients of nodes that answer WAITAOF
	gates   sync.Map               // the gates of durable runs, by gateKey
	ledger  func(shard int)        // nil: settling tells no rows, see WithLedger
}

// New returns the queue of that name; it does no I/O. A run of a script takes
// at most [DefaultTimeout].
func New(rdb redis.UniversalClient, prefix, name string) *Queue {
	return NewWithTimeout(rdb, prefix, name, DefaultTimeout)
}

// NewWithTimeout is [New] with another limit for a run of a script.
func NewWithTimeout(rdb redis.UniversalClient, prefix, name string, timeout time.Duration) *Queue {
	// A run whose reply is late must not block longer than its not-after instant.
	if client, ok := rdb.(*redis.Client); ok {
		rdb = client.WithTimeout(timeout)
	}
	return &Queue{rdb: rdb, prefix: prefix, name: name, timeout: timeout}
}

// client is the one for a call within ctx: go-redis may look at ctx before it
// sends only, so a deadline that is near becomes the timeout of the connection.
func (q *Queue) client(ctx context.Context) redis.UniversalClient {
	client, ok := q.rdb.(*redis.Client)
	if !ok {
		return q.rdb
	}
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); ok && left < q.timeout {
		return client.WithTimeout(max(left, time.Millisecond))
	}
	return client
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Now estimates Redis' clock; before the layout was loaded it is our own.
func (q *Queue) Now() time.Time {
	if ms, ok := q.clock.nowMs(); ok {
		return time.UnixMilli(ms)
	}
	return time.Now()
}
