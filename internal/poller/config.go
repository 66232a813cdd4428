package poller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/window"
)

// Defaults of [Config].
const (
	defaultBatch          = 500
	defaultInFlight       = 4
	defaultClaimTimeout   = 60 * time.Second
	defaultMaxSleep       = 2 * time.Second
	defaultLease          = 5 * time.Second
	defaultPublishTimeout = 10 * time.Second
	defaultDrain          = 20 * time.Second
	defaultParkPatience   = 24 * time.Hour
	defaultRetryInitial   = time.Second
	defaultRetryMax       = 10 * time.Minute
	defaultRetryAttempts  = 25
)

// maxBatch is the most messages that one claim may take.
const maxBatch = 500

// Store is what the poller needs of one shard in Redis. An error means that
// there was no answer: the call may have taken effect or not.
// All methods are safe for concurrent use and end with ctx.
type Store interface {
	// Claim takes due messages and renews the lease. It is repeated with the
	// same request until it is answered.
	Claim(ctx context.Context, request message.ClaimRequest) (message.Claim, error)
	// Confirm returns nil once the claim is as durable as the queue asks. It is called
	// only where [Claims.Durable] is set, and may be repeated.
	Confirm(ctx context.Context, token message.ClaimToken) error
	// Settle ends a claim or a part of it. It reports stale where the claim was
	// not ours any more, so that nothing was changed.
	Settle(ctx context.Context, settlement message.Settlement) (stale bool, err error)
	// Reclaim makes the messages of dead claims wait again. A call is bounded;
	// more says that another one is needed.
	Reclaim(ctx context.Context, which message.Reclaim) (reclaimed int, more bool, err error)
	// Parked are the routes of which messages are parked.
	Parked(ctx context.Context) ([]message.ParkedRoute, error)
	// HandOver gives up the lease, if it is the instance's.
	HandOver(ctx context.Context, instance string) error
}

// Observer receives what the poller's metrics count. Its methods are called
// from many goroutines, ObserveLateness once per message, so it must be fast.
type Observer interface {
	// ObserveLateness gets the time from due to the broker's acknowledgement.
	ObserveLateness(queue string, lateness time.Duration)
	// PublishFailure counts one message that was not acknowledged.
	PublishFailure(queue string, class, reason string)
	// AddInFlight changes the number of claimed, unsettled messages.
	AddInFlight(queue string, delta int)
	// SinkMissing counts a refusal because the topic, or what it should lead to,
	// does not exist at the broker.
	SinkMissing(sink, topic string)
	// DecodeError counts a stored message that was missing or undecodable.
	DecodeError(queue string)
	// Settled counts messages that were settled, by verb, and those of which a copy is
	// out, or may be, while an earlier one may be, too.
	Settled(queue string, n [message.VerbDrop + 1]int, suspected int)
	// Reclaimed counts messages of claims that had ended, which wait again.
	Reclaimed(queue string, n int)
	// Stale counts a settle that came too late.
	Stale(queue string)
}

// Of what a queue's policy is made.
type (
	// Retry says how refused messages are tried again.
	Retry = batch.Retry
	// Rates say how many messages a second are published at most.
	Rates = rate.Limits
	// Bucket is where the rates are shared with other instances.
	Bucket = rate.Bucket
)

// Policy has the settings of a queue that may change while it is polled.
type Policy struct {
	// Retry defaults to 1 s doubling to 10 min, 25 attempts.
	Retry Retry
	// ParkPatience is how long a route may be missing, unroutable or forbidden
	// before its messages go to the dead letters, default 24 h.
	ParkPatience time.Duration
	// Late says how late a message may be published; zero is however late.
	Late  message.Late
	Rates Rates
	// Minimal is whether messages are published with the fewest headers.
	Minimal bool
}

func (p *Policy) setDefaults() {
	setDefault(&p.Retry.Initial, defaultRetryInitial)
	setDefault(&p.Retry.Max, defaultRetryMax)
	setDefault(&p.Retry.Attempts, defaultRetryAttempts)
	setDefault(&p.ParkPatience, defaultParkPatience)
}

// Topics knows which topics the queue takes. It is safe for concurrent use.
type Topics interface {
	// Known are those that were in force some seconds ago. It asks nobody.
	Known() message.Topics
	// Ask returns those in force now.
	Ask(ctx context.Context) (message.Topics, error)
}

// Claims say how a shard's messages are claimed. Zero values mean the defaults.
type Claims struct {
	// Batch is how many messages a claim takes: 1 to 500, default 500.
	Batch int
	// InFlight is how many batches, so many messages, of a shard are in flight at
	// a time, default 4. The sink's window may allow less.
	InFlight int
	// Timeout is how long a claim lasts, default 60 s.
	Timeout time.Duration
	// MaxSleep is the longest time between two looks, default 2 s.
	MaxSleep time.Duration
	// Lease is how long a look keeps other instances out, default 5 s. It also
	// limits each call of the store.
	Lease time.Duration
	// Durable: nothing of a claim is published before the store has confirmed it.
	Durable bool
}

func (c *Claims) validate() error {
	switch {
	case c.Batch < 0 || c.Batch > maxBatch:
		return fmt.Errorf("batch is %d, allowed are 1 to %d", c.Batch, maxBatch)
	case c.InFlight < 0:
		return errors.New("in flight must not be negative")
	case min(c.Timeout, c.MaxSleep, c.Lease) < 0:
		return errors.New("the durations of claims must not be negative")
	}
	return nil
}

func (c *Claims) setDefaults() {
	setDefault(&c.Batch, defaultBatch)
	setDefault(&c.InFlight, defaultInFlight)
	setDefault(&c.Timeout, defaultClaimTimeout)
	setDefault(&c.MaxSleep, defaultMaxSleep)
	setDefault(&c.Lease, defaultLease)
}

// renewEvery is the longest time between two claims: the lease must survive
// one that is lost.
func (c *Claims) renewEvery() time.Duration {
	return min(c.MaxSleep, c.Lease*2/5)
}

// callTimeout limits one call of the store: a longer one is of no use, since
// the lease counts from its beginning.
func (c *Claims) callTimeout() time.Duration { return c.Lease }

// Sink is where a queue's messages are published.
type Sink struct {
	sinks.Sink
	// Name is the sink's in logs and metrics.
	Name string
	// Timeout is the sink's own: a shard that is handed over drains for about so
	// long. Default 10 s.
	Timeout time.Duration
	// Window is what the sink may have in flight, shared by all that publish to
	// it; default is one of the poller's own.
	Window *window.Window
	// Open makes the body of a message clear that is sealed, right before the sink gets it,
	// and takes off the header that says so. It leaves former headers and body alone. Its
	// errors are [message.ErrUnknownKey], for which the message waits, and
	// [message.ErrBrokenSeal], with which it is a dead letter. Nil: no key is known.
	Open func(m *message.Message) error
}

// Hooks are called when the poller notices something. Each may be nil.
type Hooks struct {
	// OnNoLayout is called when the store says that the shard's layout is missing,
	// again and again with backoff until it is there. It says in the log what that
	// means; without it the poller does.
	OnNoLayout func(ctx context.Context, shard int)
	// OnEpoch is called with the layout epoch in the answers of a shard's claims:
	// the first one, and each that differs from the previous one. It is called from
	// the shard's loop and must not block.
	OnEpoch func(epoch string)
	// OnLateAcks gets the outbox messages that the broker has acknowledged and
	// the store has not settled for certain (too late, only after a repetition,
	// or never), so that their rows are settled all the same. It is called from
	// many goroutines, perhaps twice for a message, and must not block.
	OnLateAcks func(acked []message.ClaimedMessage)
	// OnPublished gets the sink's report on each message that was given to it, and how
	// late the message was then. It is called once per message and attempt, from many
	// goroutines, must not block, and keeps neither pointer.
	OnPublished func(claimed *message.ClaimedMessage, began time.Time, report *sinks.Report, lateness time.Duration)
}

// Config describes a [Poller]. Zero durations and numbers mean the defaults.
type Config struct {
	// Queue names the queue, Instance this process, see [message.NewInstance].
	Queue, Instance string
	// Shards are the shards to poll at first, see [Poller.Assign].
	Shards []int
	// Store opens a shard; it does no I/O.
	Store  func(shard int) Store
	Sink   Sink
	Claims Claims
	Policy
	// Topics limits the topics; nil for all. What waits of another one goes to the dead
	// letters when it is due.
	Topics Topics
	// Bucket is where the queue's rates are shared with other instances. Nil: each instance has
	// the part of its shards.
	Bucket Bucket
	// Places has the store told where the broker has stored each message.
	Places bool
	// Logger defaults to none, Observer to none.
	Logger   *slog.Logger
	Observer Observer
	Hooks    Hooks
}

func (c *Config) validate() error {
	switch {
	case c.Queue == "" || c.Instance == "":
		return errors.New("a poller needs a queue and an instance")
	case c.Sink.Sink == nil || c.Store == nil:
		return errors.New("a poller needs a sink and a store")
	case c.Retry.Attempts < 0:
		return errors.New("retry attempts must not be negative")
	case min(c.Sink.Timeout, c.ParkPatience, c.Retry.Initial, c.Retry.Max) < 0:
		return errors.New("durations must not be negative")
	}
	return c.Claims.validate()
}

// withDefaults fills what is zero.
func (c Config) withDefaults() Config {
	c.Claims.setDefaults()
	setDefault(&c.Sink.Timeout, defaultPublishTimeout)
	c.Policy.setDefaults()
	if c.Sink.Window == nil {
		c.Sink.Window = window.New()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("queue", c.Queue, "sink", c.Sink.Name, "instance", message.InstanceName(c.Instance))
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return c
}

func setDefault[T int | time.Duration](value *T, standard T) {
	if *value == 0 {
		*value = standard
	}
}

type noObserver struct{}

func (noObserver) ObserveLateness(string, time.Duration) {}
func (noObserver) PublishFailure(string, string, string) {}
func (noObserver) AddInFlight(string, int)               {}
func (noObserver) SinkMissing(string, string)            {}
func (noObserver) DecodeError(string)                    {}
func (noObserver) Stale(string)                          {}
func (noObserver) Reclaimed(string, int)                 {}

// Settled implements [Observer].
func (noObserver) Settled(string, [message.VerbDrop + 1]int, int) {}
