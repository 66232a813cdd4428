package delay

import (
	"log/slog"
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Conflict says what Schedule does if the identity is taken.
type Conflict int

// The conflict policies.
const (
	// AsClient, the zero value, stands for the client's policy in a [Request], and for Reject in
	// [WithConflict].
	AsClient Conflict = iota
	// Reject answers [ErrDuplicate] and leaves the other message alone. The default.
	Reject
	// Keep leaves the other message alone and returns no error, which suits the repetition of a call
	// whose outcome is unknown.
	Keep
	// Replace replaces a message that waits or is dead. If it is in flight, the
	// answer is [ErrTooLate].
	Replace
)

func (c Conflict) isKnown() bool { return c >= AsClient && c <= Replace }

func invalidConflict(c Conflict) error {
	return invalid("conflict", strconv.Itoa(int(c)), "Reject, Keep or Replace")
}

// policy returns the policy that applies to a request.
func (o *options) policy(r *Request) Conflict {
	switch {
	case r.Conflict != AsClient:
		return r.Conflict
	case o.conflict != AsClient:
		return o.conflict
	default:
		return Reject
	}
}

// Durability says who must confirm a change before its call returns nil. Without
// the confirmation in time, the change stays, and the call answers [ErrNotDurable].
type Durability int

// Memory is done when the primary has the change in memory; it is the default. It
// survives crashes of producers and bridges, and a crash of Redis as far as
// Redis' own persistence goes.
const Memory Durability = 0

// Replicas is done when n replicas, too, have confirmed the change within a
// second. It survives a failover to one of them. With n below the number of
// replicas, it may not survive a primary that hung or was cut off, was replaced
// and goes on for a while: a replica that follows it still confirms what is lost
// when it learns of the new primary. With all of them it survives that, too, since
// the one that took its place confirms nothing. If fewer than n confirm, a call
// waits for one second, two at worst, and answers [ErrNotDurable]. From then on
// only one call at a time waits, and the others return [ErrNotDurable] at once,
// until n confirm again.
func Replicas(n int) Durability { return Durability(n) }

// Fsync is done when the primary has confirmed within three seconds that the
// change is on its disk. It survives a crash of Redis and of its machine, but not
// a failover to a replica. It needs Redis 7.2 or later, or Valkey, with appendonly
// yes; otherwise the answer is [ErrInvalid], and nothing is written.
//
// With appendfsync everysec it needs Redis 8 or later: Redis 7 and Valkey (9.1 at
// least) confirm before the disk has the change (redis/redis#13793). The client
// answers ErrInvalid if it may ask Redis for its version (INFO) and for appendfsync
// (CONFIG GET). A call then takes up to a second or two and holds a connection
// for that time: schedule in batches, or set it to always. At most three quarters
// of the client's pool, and 256 connections to a node, wait at once; further calls
// wait for them. With appendfsync no, Redis never confirms it. A late disk is
// handled like missing replicas, see [Replicas].
const Fsync Durability = math.MinInt

func (d Durability) wait() store.Durability {
	if d == Fsync {
		return store.ByFsync()
	}
	return store.ByReplicas(int(d))
}

// Option changes a client's default.
type Option func(*options)

type options struct {
	prefix   string
	conflict Conflict
	durable  Durability
	timeout  time.Duration
	maxSize  int
	alone    bool
	extras   extras

	compensation compensationOptions
}

// extras are what the program supplies; each may be nil.
type extras struct {
	logger    *slog.Logger
	tracers   trace.TracerProvider
	keys      *Keyring
	encrypted bool
}

// WithPrefix sets the prefix of all keys in Redis. It must be the one in the
// bridge's configuration; the default of both is "delay".
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithConflict sets what Schedule does if the identity is taken. The default is Reject.
func WithConflict(c Conflict) Option { return func(o *options) { o.conflict = c } }

// WithDurability sets when Schedule, Cancel and Reschedule are done. The default is [Memory].
func WithDurability(d Durability) Option { return func(o *options) { o.durable = d } }

// WithCoalescing sets whether concurrent calls of the client share round trips to
// Redis, which they do by default: calls of one kind to one node of Redis that arrive
// while another is under way are sent together. A lone call never waits. Each call
// keeps its own deadline and its own answer. If its ctx is cancelled after it was sent,
// it ends with the script, within two seconds.
func WithCoalescing(together bool) Option { return func(o *options) { o.alone = !together } }

// WithTimeout limits how long a call may take if its ctx does not end first: 10
// s by default, 30 s at most.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithMaxSize sets a limit on a message's size, in bytes, that is lower than the queue's own.
func WithMaxSize(bytes int) Option { return func(o *options) { o.maxSize = bytes } }

// WithTracerProvider sets the provider for the spans of Schedule and ScheduleBatch, one
// span a call; most programs pass otel.GetTracerProvider(). Without this option, or with
// nil, there are no spans. A message without a traceparent gets that of the span, so that
// the spans of bridge and consumers belong to the same trace. This takes about 70 bytes
// per message in Redis. A message that has a traceparent keeps it; one without room for
// it, or that goes by [WithCompensation], gets none.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *options) { o.extras.tracers = p }
}
