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
	// MySQL is for MariaDB, too.
	MySQL = schema.MySQL
)

// Outbox writes messages into the table of one database. It is safe for
// concurrent use, holds no connection and no goroutine, and needs no Close.
type Outbox struct {
	dialect Dialect
	options
	// err is the error of the options; every call returns it.
	err error
	// queues are those that were pushed to, by name, with their layouts.
	queues sync.Map
	// pinFailed is when Redis did not answer a [Tracked] the last time.
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

// WithTable sets the table's name: "delay_outbox", or what the bridge's
// configuration says. 1 to 41 of a-z 0-9 _, the first no digit, and before it, where
// the session would look elsewhere, its schema and a dot: "app.delay_outbox". In
// MySQL, a schema is a database.
func WithTable(name string) Option { return func(o *options) { o.table = name } }

// WithMaxSize sets the size limit of a message in bytes. The default is 960 KiB,
// that of a queue; the bridge refuses rows beyond the queue's own.
func WithMaxSize(bytes int) Option { return func(o *options) { o.maxSize = bytes } }

// WithConflict sets what Schedule does with an identity of which the table has a message
// that is not published or cancelled: [delay.Reject], the default, [delay.Keep] or
// [delay.Replace]. A [delay.Request] may have its own.
//
// Replace replaces that message. The bridge cancels it first, and only then is the new one on
// its way; while the old one is being published, the new one waits. Bridges of a version without
// Replace refuse such rows: upgrade them first. Until the bridge has handled a Replace, the
// table has no message of it that a Schedule could conflict with. If the old message is
// published before that, a later Schedule succeeds, and its message is the one that is replaced.
func WithConflict(c delay.Conflict) Option {
	return func(o *options) {
		if o.conflict = c; c == delay.AsClient {
			o.conflict = delay.Reject
		}
	}
}

// WithMerge makes [Outbox.Reschedule] write its due time into the row of the reschedule before
// it, if the bridge has not begun with that: a timeout that is postponed again and again costs
// one row, not one each time. Then both have one row, and one answer.
//
// The row stays locked until the transaction ends, and until then the bridge cannot apply the
// earlier reschedule. So it merges only if neither the message nor that reschedule is due within
// a minute, if no one else has locked the row, and, so that no call fails for it, in PostgreSQL
// only at READ COMMITTED and in MariaDB only without innodb_snapshot_isolation. In all other
// cases it adds a row. Producers need UPDATE on the table. Upgrade bridges of a version without
// it first.
func WithMerge() Option { return func(o *options) { o.merges = true } }

// WithSink says which broker a queue's messages go to, so that [Outbox.Schedule]
// refuses what that broker could never take; else the bridge refuses the row soon
// after the commit. [Outbox.Track] with [WithRedis] reads it from Redis. Give it once
// per queue.
func WithSink(queue string, sink Sink) Option {
	return func(o *options) {
		if o.sinks == nil {
			o.sinks = map[string]Sink{}
		}
		o.sinks[queue] = sink
	}
}

// WithNotify wakes the relays of a bridge that has "notify: true", in PostgreSQL,
// at the commit. It saves up to a poll's interval, but commits with a
// notification pass one at a time through the whole server.
func WithNotify() Option { return func(o *options) { o.notify = true } }

// WithRedis is for [Outbox.Track]: the Redis of the bridge, and the prefix of all
// its keys, "delay" if it is empty. What Redis says of a queue there, its sink and
// size limit, counts for every [Outbox.Schedule] of the next minute.
func WithRedis(rdb redis.UniversalClient, prefix string) Option {
	return func(o *options) { o.rdb, o.prefix = rdb, prefix }
}

// WithHorizon is for [Outbox.Track]: messages due later than that are left to the
// bridge. The default is an hour, as the bridge's.
func WithHorizon(d time.Duration) Option { return func(o *options) { o.horizon = d } }

// WithCompensation is for [Outbox.Track]: messages that could not be written to Redis
// are sent to the bridge through the broker. The bridge finds the row anyway; this is
// only sooner if the database is under load.
func WithCompensation(publish Publisher) Option {
	return func(o *options) { o.compensation.publish = publish }
}

// WithCompensationTopic sets the topic of [WithCompensation] for all queues. The
// default is the bridge's, "delay.compensation." and the queue's name.
func WithCompensationTopic(topic string) Option {
	return func(o *options) { o.compensation.topic = topic }
}

// WithTracerProvider sets who makes the spans of Schedule and ScheduleBatch, and so the
// traceparent of messages that have none. By default there are no spans; see [delay.WithTracerProvider].
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
		table: schema.DefaultTable, maxSize: message.DefaultMaxSize, horizon: time.Hour, conflict: delay.Reject,
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

// name is the table's without its schema: its indexes and its notifications have it.
func (o *Outbox) name() string {
	_, name := schema.Split(o.table)
	return name
}

// ready checks what every call is given.
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

// failed gives an error of the database its context.
func (o *Outbox) failed(verb string, err error) error {
	return fmt.Errorf("%s in table %s: %w", verb, o.table, err)
}

var errNoRead = errors.New("the transaction has no QueryRowContext, which this call needs")
