package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	// beatEvery is the interval of an instance's heartbeats, shortLease how many
	// there are within a short lease.
	beatEvery  = time.Second
	shortLease = 5
	// turnGap is the shortest time between two turns, however many hints come.
	turnGap = 20 * time.Millisecond
	// forgetLeases is after how many leases Redis may forget an instance.
	forgetLeases = 12
	// leaveTime bounds how long an instance that ends tries to say so.
	leaveTime = time.Second
	// firstPause and longPause are between two tries to make the layout.
	firstPause = 100 * time.Millisecond
	longPause  = 2 * time.Second
)

// Store is what a member needs of the queue's instances in Redis. Its methods end
// with ctx.
type Store interface {
	// Heartbeat records that the instance lives, and returns the last heartbeats of
	// all, and the paused topics with the times at which their pauses began. Redis
	// may forget an instance that was silent for longer than forgetAfter.
	Heartbeat(ctx context.Context, instance string, forgetAfter time.Duration) (
		all []store.Heartbeat, paused map[string]time.Time, err error)
	// Leave forgets the instance, and tells the others.
	Leave(ctx context.Context, instance string) error
}

// Registry is what a member needs of the queue's layout in Redis. Its methods end
// with ctx.
type Registry interface {
	// Load reads the layout. Its error is [store.ErrNoLayout] if there is none.
	Load(ctx context.Context) (*store.Layout, error)
	// Ensure makes the layout if there is none. It returns the layout in force
	// even with an error, if only some shards were not reached.
	Ensure(ctx context.Context, want store.Layout) (*store.Layout, error)
	// Born returns when each shard in use of the layout was made, zero if that is
	// not known. With an error some were not asked.
	Born(ctx context.Context, layout *store.Layout) ([]time.Time, error)
	// Repair gives a new meta to shards that have lost it, and returns them.
	Repair(ctx context.Context) (lost []int, err error)
	// RecordLoss records what Redis has lost, for operators.
	RecordLoss(ctx context.Context, loss store.Loss) error
}

// Poller polls the assigned shards.
type Poller interface {
	// Assign sets the shards to poll, of how many. An error means that the poller was
	// stopped.
	Assign(shards []int, of int) error
	// Gains returns the shards that it has come to hold since the last call.
	Gains() Gains
	// Pause sets the paused topics, and when each pause began; the empty topic stands
	// for the whole queue.
	Pause(topics map[string]time.Time)
}

// Gains are the shards that a poller has come to hold.
type Gains struct {
	// Free are the shards that nobody held, or that were handed over. Lapsed are
	// those whose holder fell silent, so that its lease had to end first.
	Free, Lapsed []int
	// Reclaimed counts the messages of claims that earlier holders had left.
	Reclaimed int
}

// Observer receives the figures of the metrics.
type Observer interface {
	// Layout gets the layout in use.
	Layout(queue, epoch string, shards int)
	// ShardsLost gets how many shards Redis has lost.
	ShardsLost(queue string, n int)
	// Instances gets how many instances share the queue's shards.
	Instances(queue string, n int)
	// Paused gets which topics are paused, and since when; the empty one is the whole
	// queue.
	Paused(queue string, topics map[string]time.Time)
}

// Config configures a [Member]. All fields except Keeper and Reborn are required.
type Config struct {
	// Queue is the queue's name. Instance is the process' identity, "name/boot".
	Queue, Instance string
	// Lease is how long a shard stays with a holder that is silent.
	Lease time.Duration
	// Want is the layout to make if the queue has none.
	Want     store.Layout
	Store    Store
	Registry Registry
	Keeper   Keeper
	Observer Observer
	Logger   *slog.Logger
	// Heard is called for each answer of Redis, and for each call without one.
	// It is called from several goroutines and must not block.
	Heard func(err error)
	// Hear subscribes to Redis' hints of these shards, and of changes of the
	// instances and the layout; for the latter it must call changed.
	Hear func(shards []int, changed func())
	// Reborn, if set, is called after Redis has lost the queue, or shards of it, and
	// they were made again, empty.
	Reborn func()
}

// Member is one instance in one queue. It owns goroutines only during Run.
type Member struct {
	config *Config

	roll      roll
	namesakes namesakes
	layouts   *layouts
	share     share
	pauses    pauses
	upkeep    *upkeep
	silence   telemetry.Trouble
	// changed says that somebody came or went, or that the layout has changed; of 1.
	changed chan struct{}
}

// New returns the member; it does no I/O.
func New(config Config) *Member {
	m := &Member{config: &config, changed: make(chan struct{}, 1)}
	m.roll = roll{self: config.Instance, deadAfter: m.deadAfter()}
	m.namesakes = namesakes{self: config.Instance}
	m.share = share{config: m.config, name: message.InstanceName(config.Instance)}
	m.layouts = &layouts{config: m.config, notice: m.notice}
	m.layouts.births = births{config: m.config, lost: m.layouts.lost}
	m.pauses = pauses{config: m.config}
	m.upkeep = &upkeep{config: m.config, layouts: m.layouts}
	return m
}

// Prepare makes the layout if there is none, again and again until Redis has
// answered or ctx ends.
func (m *Member) Prepare(ctx context.Context) (*store.Layout, error) {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	var trouble telemetry.Trouble
	for {
		layout, err := m.prepareOnce(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m.config.Heard(err)
		if err == nil {
			m.layouts.use(layout)
			return layout, nil
		}
		if cause := rediserr.Cause(err); trouble.News(cause) {
			m.config.Logger.Warn("redis unavailable, trying again", "event", "start", "reason", cause, "err", err)
		}
		if !wait.Sleep(ctx, pause.Next()) {
			return nil, ctx.Err()
		}
	}
}

func (m *Member) prepareOnce(ctx context.Context) (*store.Layout, error) {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	layout, err := m.config.Registry.Ensure(ctx, m.config.Want)
	if layout == nil {
		return nil, err
	}
	// It is in force. A shard that was not reached needs nothing but its poller,
	// and is no reason not to poll those of other nodes.
	if layout.Shards != m.config.Want.Shards {
		m.config.Logger.Warn("shards differ from the configuration, which counts only when a queue is made",
			"event", "start", "shards", layout.Shards, "configured", m.config.Want.Shards)
	}
	return layout, nil
}

// Run keeps the poller at this instance's share of the shards until ctx ends,
// and then returns nil. Its error is [ErrNameTaken]. Prepare must have succeeded.
func (m *Member) Run(ctx context.Context, poller Poller) error {
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer cancel()
	keeping.Go(func() { m.upkeep.run(ctx) })
	m.layouts.loaded(time.Now())
	m.layouts.births.look(ctx, m.layouts.inUse.Load())
	for hinted := false; ctx.Err() == nil; {
		began := time.Now()
		heard, err := m.beat(ctx, poller)
		if err != nil {
			return err
		}
		if heard {
			m.assign(poller)
		}
		if m.layouts.due(began, hinted) && m.layouts.reload(ctx) {
			m.assign(poller)
		}
		m.share.tell(began, poller)
		hinted = m.awaitTurn(ctx, began)
	}
	return nil
}

// Leave tells the others that this instance ends, after Run: they begin at once
// to wait for its shards.
func (m *Member) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := m.config.Store.Leave(ctx, m.config.Instance); err != nil {
		m.config.Logger.Warn("the other instances were not told that this one ends, they will notice", "event", "drain", "err", err)
	}
}

// IsKeeper reports whether this instance is the queue's keeper. Two may be, for a
// moment.
func (m *Member) IsKeeper() bool { return m.upkeep.mine.Load() }

// Instance is the identity that this instance has in the queue, "name/boot".
func (m *Member) Instance() string { return m.config.Instance }

// Layout returns the layout in use; nil before Prepare has succeeded.
func (m *Member) Layout() *store.Layout { return m.layouts.inUse.Load() }

// SawEpoch records the epoch in a claim's answer. It never blocks.
func (m *Member) SawEpoch(epoch string) { m.layouts.sawEpoch(epoch) }

// NoMeta is called when a claim has found no meta of a shard: it was dropped by
// a change of the layout that we have not heard of yet, or Redis has lost it.
func (m *Member) NoMeta(ctx context.Context) { m.layouts.repair(ctx) }

// notice makes the next turn come now. It never blocks.
func (m *Member) notice() { wait.Wake(m.changed) }

// awaitTurn waits for the next turn, and reports that a hint made it come.
func (m *Member) awaitTurn(ctx context.Context, began time.Time) (hinted bool) {
	timer := time.NewTimer(time.Until(began.Add(min(beatEvery, m.config.Lease/shortLease))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-m.changed:
		return wait.Sleep(ctx, time.Until(began.Add(turnGap)))
	case <-ctx.Done():
		return false
	}
}

// deadAfter is how long an instance is silent before others poll its shards.
// Its lease lasts longer, so they wait, but are ready when it ends.
func (m *Member) deadAfter() time.Duration { return m.config.Lease * 3 / 5 }

// beat sends a heartbeat, and learns who lives and what is paused. Without an answer nothing
// changes: the leases decide.
func (m *Member) beat(ctx context.Context, poller Poller) (heard bool, err error) {
	callCtx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	answer, paused, err := m.config.Store.Heartbeat(callCtx, m.config.Instance, forgetLeases*m.config.Lease)
	if ctx.Err() != nil {
		return false, nil
	}
	m.config.Heard(err)
	if err != nil {
		m.namesakes.unheard()
		if cause := rediserr.Cause(err); m.silence.News(cause) {
			m.config.Logger.Warn("heartbeat failed, the shards stay as they are", "event", "heartbeat", "reason", cause, "err", err)
		}
		return false, nil
	}
	if m.silence.Over() {
		m.config.Logger.Info("heartbeat works again", "event", "heartbeat", "instances", len(answer))
	}
	now := time.Now()
	if other := m.namesakes.hear(now, answer); other != "" {
		return false, taken(m.config.Instance, other)
	}
	before := m.roll.live
	m.roll.hear(now, answer)
	if joining, gone := without(m.roll.live, before), without(before, m.roll.live); len(joining)+len(gone) > 0 {
		m.config.Logger.Info("instances changed", "event", "instances",
			"instances", len(m.roll.live), "joined", joined(joining), "gone", joined(gone))
	}
	m.config.Observer.Instances(m.config.Queue, len(m.roll.live))
	m.pauses.hear(paused, poller)
	return true, nil
}

// assign gives the poller the shards that this instance owns.
func (m *Member) assign(poller Poller) {
	if len(m.roll.live) == 0 {
		return // No heartbeat was answered yet.
	}
	m.upkeep.mine.Store(m.share.keeps(m.roll.live))
	m.share.assign(poller, m.roll.live, m.Layout().InUse(), m.notice)
}

// ErrNameTaken is returned if another running bridge uses this one's name.
var ErrNameTaken = errors.New("the instance name is used by another running bridge")

func taken(mine, other string) error {
	return fmt.Errorf("instance %q: %w (boot %s, this one is boot %s): give each bridge its own name, or leave `instance` empty",
		message.InstanceName(mine), ErrNameTaken, boot(other), boot(mine))
}

// pauses follows what operators have paused.
type pauses struct {
	config *Config

	topics map[string]time.Time // nil before the first time
}

// hear takes the pauses of a heartbeat, before any shard is assigned, so a new
// instance claims nothing that is paused.
func (p *pauses) hear(topics map[string]time.Time, poller Poller) {
	if p.topics != nil && maps.EqualFunc(topics, p.topics, time.Time.Equal) {
		return
	}
	before := p.topics
	p.topics = topics
	poller.Pause(topics)
	p.config.Observer.Paused(p.config.Queue, topics)
	paused, resumed := without(named(topics), named(before)), without(named(before), named(topics))
	if len(paused)+len(resumed) > 0 {
		p.config.Logger.Info("pauses changed", "event", "pause", "paused", joined(paused), "resumed", joined(resumed))
	}
}

// named are the topics for the log, sorted.
func named(topics map[string]time.Time) []string {
	names := slices.Sorted(maps.Keys(topics))
	if len(names) > 0 && names[0] == "" {
		names[0] = "the whole queue"
	}
	return names
}

// without returns the elements of a that are not in b.
func without[T comparable](a, b []T) []T {
	left := []T{}
	for _, one := range a {
		if !slices.Contains(b, one) {
			left = append(left, one)
		}
	}
	return left
}

// mostListed is how many things one line of the log lists.
const mostListed = 32

// joined lists things in a line of the log, not too many.
func joined[T any](list []T) string {
	var text strings.Builder
	for i, one := range list {
		if i == mostListed {
			fmt.Fprintf(&text, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprint(&text, one)
	}
	return text.String()
}
