package delay

import (
	"log/slog"
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Conflict says what Schedule does with an identity that is taken.
type Conflict int

// The conflict policies.
const (
	// AsClient is, in a [Request], the policy of the client; and the client's own default, Reject.
	AsClient Conflict = iota
	// Reject answers [ErrDuplicate] and leaves the other message alone. The default.
	Reject
	// Keep leaves the other message alone and is content: the policy for
	// repeating a call whose outcome is unknown.
	Keep
	// Replace puts the message in the place of a waiting or dead one; one that
	// is in flight is answered with [ErrTooLate].
	Replace
)

func (c Conflict) isKnown() bool { return c >= AsClient && c <= Replace }

func invalidConflict(c Conflict) error {
	return invalid("conflict", strconv.Itoa(int(c)), "Reject, Keep or Replace")
}

// policy is what holds for a request.
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

// Durability says when a call may be called done. If that is not confirmed in
// time, the call is done all the same and answers [ErrNotDurable].
type Durability int

// Memory calls it done when the primary has it in memory: it survives crashes
// of producers and bridges, and of Redis as far as its own persistence goes.
// The default.
const Memory Durability = 0

// Replicas calls it done when n replicas have confirmed it within a second, too.
// It survives a failover to one of them; not a primary that was cut off from
// them, which comes back and loses what it had accepted meanwhile. If fewer
// than n confirm, a call waits for a second, two at the worst, and answers
// [ErrNotDurable]. From then on only one call at a time waits, while the others
// answer it at once, until n confirm again.
func Replicas(n int) Durability { return Durability(n) }

// Fsync calls it done when the primary has confirmed within three seconds that
// it is on its disk. It survives a crash of Redis and of its machine, but not a
// failover to a replica. It needs Redis 7.2 or later, or Valkey, with appendonly
// yes; any other answers [ErrInvalid], before anything is written. With
// appendfsync everysec it needs Redis 8 or later: Redis 7 and Valkey, 9.1 at the
// least, say that the disk has what it has not (redis/redis#13793), and answer
// ErrInvalid, if the client may ask them for INFO and CONFIG GET appendfsync. A
// call then takes up to a second or two and holds a connection
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

// extras is what a program brings along; each may be missing.
type extras struct {
	logger    *slog.Logger
	tracers   trace.TracerProvider
	keys      *Keyring
	encrypted bool
}

// WithPrefix sets the prefix of all keys in Redis: "delay", or what the
// bridge's configuration says.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithConflict sets what Schedule does with an identity that is taken.
func WithConflict(c Conflict) Option { return func(o *options) { o.conflict = c } }

// WithDurability sets when Schedule, Cancel and Reschedule are done.
func WithDurability(d Durability) Option { return func(o *options) { o.durable = d } }

// WithCoalescing sets whether concurrent calls of the client travel to Redis
// together, which they do by default: calls of the same kind for one node of Redis that
// come while another is under way leave together. A lone call never waits.
// Each call keeps its own deadline and its own answer; if ctx is cancelled
// while it travels, it ends with the script, within two seconds.
func WithCoalescing(together bool) Option { return func(o *options) { o.alone = !together } }

// WithTimeout sets how long a call may take if its ctx does not end before:
// 10 s by default, 30 s at the most.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithMaxSize lowers the size limit of a message, in bytes, below the queue's own.
func WithMaxSize(bytes int) Option { return func(o *options) { o.maxSize = bytes } }

// WithTracerProvider sets who makes the spans of Schedule and ScheduleBatch, one a call:
// otel.GetTracerProvider(), for most programs. Without it, and with nil, there are no
// spans. A message without a traceparent gets that of the span, so that the bridge's and
// the consumers' spans are of the same trace: about 70 bytes more in Redis a message. One
// that has a traceparent keeps it; one without room for it, or that goes by
// [WithCompensation], stays without.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *options) { o.extras.tracers = p }
}
