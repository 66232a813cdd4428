package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/conn"
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
	conn   *conn.Durable
	prefix string
	name   string
	clock  clock
	clocks sync.Map // of the nodes of a Cluster: redis.UniversalClient to *clock
	layout atomic.Pointer[Layout]
	stale  atomic.Pointer[Layout] // a layout that a shard has refused
	ledger func(shard int)        // nil: settling tells no rows, see WithLedger
}

// New returns the queue of that name; it does no I/O. A run of a script takes
// at most [DefaultTimeout].
func New(rdb redis.UniversalClient, prefix, name string) *Queue {
	return NewWithTimeout(rdb, prefix, name, DefaultTimeout)
}

// NewWithTimeout is [New] with another limit for a run of a script.
func NewWithTimeout(rdb redis.UniversalClient, prefix, name string, timeout time.Duration) *Queue {
	return &Queue{conn: conn.NewDurable(conn.New(rdb, timeout)), prefix: prefix, name: name}
}

// WithBatcher makes the queue send its quiet runs by b, whose client must be
// its own, and returns the queue. It is called before the queue is used.
func (q *Queue) WithBatcher(b *conn.Batcher) *Queue {
	q.conn.SetBatcher(b)
	return q
}

// Durability is how certain an effect must be.
type Durability = conn.Durability

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Now estimates Redis' clock; before the layout was loaded it is our own.
func (q *Queue) Now() time.Time {
	if ms, ok := q.clock.nowMs(); ok {
		return time.UnixMilli(ms)
	}
	return time.Now()
}
