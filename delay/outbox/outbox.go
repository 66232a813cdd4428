package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Dialect is the SQL that the database speaks.
type Dialect = schema.Dialect

// The dialects.
const (
	PostgreSQL = schema.Postgres
	// MySQL also stands for MariaDB.
	MySQL = schema.MySQL
)

// Outbox writes messages into the table of one database. It is safe for
// concurrent use, holds no connection and no goroutine, and needs no Close.
type Outbox struct {
	dialect Dialect
	options
	// err is the error of the options; every call returns it.
	err error
	// queues are the queues of earlier pushes by name, with their layouts.
	queues sync.Map
	// pinFailed is when Redis last failed to answer a [Tracked].
	pinFailed atomic.Pointer[time.Time]
}

// Option changes an outbox' default.
type Option func(*options)

type options struct {
	table   string
	maxSize int
	// conflict is never AsClient.
	conflict delay.Conflict
	horizon  time.Duration
	notify   bool
	merges   bool
	sinks    map[string]Sink // by queue
	added    extras

	rdb          redis.UniversalClient
	prefix       string
	patience     time.Duration // see pinPatience
	compensation struct {
		publish Publisher
		topic   string
	}
}

// extras is what the outbox adds to a message on its way into the table.
type extras struct {
	tracers   trace.TracerProvider
	keys      *delay.Keyring
	encrypted bool
}

// Publisher publishes one message to the broker, with exactly these headers, and
// returns when the broker has acknowledged it.
type Publisher func(ctx context.Context, topic string, headers map[string]string, body []byte) error

// WithTable sets the table's name, which must be the one in the bridge's
// configuration; the default of both is "delay_outbox". A name has 1 to 41 of a-z 0-9
// _ and does not begin with a digit. Put the schema and a dot before it if the session
// would look elsewhere: "app.delay_outbox". In MySQL, a schema is a database.
func WithTable(name string) Option { return func(o *options) { o.table = name } }

// WithMaxSize sets the size limit of a message in bytes. The default is 960 KiB,
// as for a queue; the bridge refuses rows beyond the queue's own limit.
func WithMaxSize(bytes int) Option { return func(o *options) { o.maxSize = bytes } }

// WithConflict sets what Schedule does if the table has a message of that identity that
// is not published or cancelled: [delay.Reject], the default, [delay.Keep] or
// [delay.Replace]. A [delay.Request] may have its own policy.
//
// Replace replaces that message. The bridge cancels the old one before it schedules the new one;
// while the old one is being published, the new one waits. Bridges of a version without Replace
// refuse such rows, so upgrade them first. Until the bridge has handled a Replace, a Schedule
// does not see its new message. If the old message is published before that, a later Schedule
// succeeds, and its message is the one that is replaced.
func WithConflict(c delay.Conflict) Option {
	return func(o *options) {
		if o.conflict = c; c == delay.AsClient {
			o.conflict = delay.Reject
		}
	}
}

// WithMerge makes [Outbox.Reschedule] write its due time into the row of the previous
// reschedule, if the bridge has not begun to apply that one. So a timeout that is postponed
// again and again costs one row in total. Merged reschedules share one row and one answer.
//
// The row stays locked until the transaction ends, and until then the bridge cannot apply the
// earlier reschedule. So Reschedule merges only if neither the message nor that reschedule is
// due within a minute and nobody else has locked the row. It also merges only where no call can
// fail because of it: in PostgreSQL at READ COMMITTED, in MariaDB without
// innodb_snapshot_isolation. In all other cases it adds a row. Producers need UPDATE on the
// table. Upgrade bridges of a version without WithMerge first.
func WithMerge() Option { return func(o *options) { o.merges = true } }

// WithSink says which broker a queue's messages go to, so that [Outbox.Schedule]
// refuses topics and headers that this broker could never accept; without it, the
// bridge refuses the row soon after the commit. [Outbox.Track] with [WithRedis] reads
// the broker from Redis instead. Give it once per queue.
func WithSink(queue string, sink Sink) Option {
	return func(o *options) {
		if o.sinks == nil {
			o.sinks = map[string]Sink{}
		}
		o.sinks[queue] = sink
	}
}

// WithNotify wakes the relays at the commit, in PostgreSQL, if the bridge has
// "notify: true". It saves up to one poll interval, but PostgreSQL lets commits
// with a notification through one at a time, over the whole server.
func WithNotify() Option { return func(o *options) { o.notify = true } }

// WithRedis is for [Outbox.Track]: the Redis of the bridge, and the prefix of all
// its keys; an empty prefix means "delay". The sink and the size limit that Redis
// has for a queue then apply to every [Outbox.Schedule] of the next minute.
func WithRedis(rdb redis.UniversalClient, prefix string) Option {
	return func(o *options) { o.rdb, o.prefix = rdb, prefix }
}

// WithHorizon is for [Outbox.Track]: messages due later than d from now are left
// to the bridge. The default is one hour, like the bridge's.
func WithHorizon(d time.Duration) Option { return func(o *options) { o.horizon = d } }

// WithCompensation is for [Outbox.Track]: messages that could not be written to Redis
// are sent to the bridge through the broker. The bridge finds the row anyway; this is
// only faster if the database is under load.
func WithCompensation(publish Publisher) Option {
	return func(o *options) { o.compensation.publish = publish }
}

// WithCompensationTopic sets the topic of [WithCompensation] for all queues. The
// default is the bridge's, "delay.compensation." and the queue's name.
func WithCompensationTopic(topic string) Option {
	return func(o *options) { o.compensation.topic = topic }
}

// WithTracerProvider sets the provider for the spans of Schedule and ScheduleBatch, and so for the
// traceparent of messages without one. By default there are no spans; see [delay.WithTracerProvider].
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *options) { o.added.tracers = p }
}

// WithEncryption encrypts bodies before they are written into a row; see
// [delay.WithEncryption].
func WithEncryption(keys *delay.Keyring) Option {
	return func(o *options) { o.added.keys, o.added.encrypted = keys, true }
}

// New returns an outbox. It does no I/O. Every call reports an error of the options as
// [delay.ErrInvalid].
func New(dialect Dialect, opts ...Option) *Outbox {
	o := &Outbox{dialect: dialect, options: options{
		table: schema.DefaultTable, maxSize: message.DefaultMaxSize, horizon: time.Hour, conflict: delay.Reject, patience: pinPatience,
	}}
	for _, set := range opts {
		set(&o.options)
	}
	if o.prefix == "" {
		o.prefix = "delay"
	}
	o.err = o.check()
	return o
}

func (o *Outbox) check() error {
	switch {
	case o.dialect != PostgreSQL && o.dialect != MySQL:
		return invalid("dialect", string(o.dialect), "PostgreSQL or MySQL")
	case schema.CheckTable(o.table) != nil:
		return invalid("table", o.table, schema.TableRule)
	case o.maxSize <= 0:
		return invalid("max size", strconv.Itoa(o.maxSize), "1 byte or more")
	case !message.KeyPrefix.MatchString(o.prefix):
		return invalid("prefix", o.prefix, message.KeyPrefixRule)
	case !isKnown(o.conflict):
		return invalidConflict(o.conflict)
	case o.notify && o.dialect != PostgreSQL:
		return invalid("notify", "true", "in PostgreSQL only")
	case o.added.encrypted && o.added.keys == nil:
		return invalid("encryption", "nil", "a keyring")
	}
	return o.checkSinks()
}

// name is the table's name without its schema, which its indexes and notifications use.
func (o *Outbox) name() string {
	_, name := schema.Split(o.table)
	return name
}

// ready checks the arguments that every call has.
func (o *Outbox) ready(tx DB, queue string) error {
	switch {
	case o.err != nil:
		return o.err
	case tx == nil:
		return invalid("tx", "nil", "a transaction")
	case !message.QueueName.MatchString(queue):
		return invalidQueue(queue)
	}
	return nil
}

func isKnown(c delay.Conflict) bool { return c >= delay.AsClient && c <= delay.Replace }

func invalidConflict(c delay.Conflict) error {
	return invalid("conflict", strconv.Itoa(int(c)), "Reject, Keep or Replace")
}

func invalidQueue(queue string) error {
	return invalid("queue", queue, message.QueueNameRule)
}

func invalid(field, value, limit string) error {
	return fmt.Errorf("%w: %w", delay.ErrInvalid, &message.InvalidError{Field: field, Value: value, Limit: limit})
}

// failed adds context to an error of the database.
func (o *Outbox) failed(verb string, err error) error {
	return fmt.Errorf("%s in table %s: %w", verb, o.table, err)
}

var errNoRead = errors.New("the transaction has no QueryRowContext, which this call needs")
