package poller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
)

// driver runs a [shard]: it has the clock, sleeps, makes its calls, each in a goroutine of
// its own, and tells it what comes of them. All that it tells, its one loop does. Its
// goroutines end after drain, or at the latest when its contexts end and the sink and the
// store return.
type driver struct {
	*shutdown
	queue *Queue
	index int
	log   *slog.Logger
	shard *Shard
	store Store
	// news, of 1: something was posted, an outcome was reported, or there is room in the window.
	news chan struct{}
	hint chan struct{} // "look again", of 1
	// hasRoom: the window has room, or the sink is back. isAllowed: the rates may allow more.
	hasRoom, isAllowed atomic.Bool
	// lastLook is when the loop had no call without an answer.
	lastLook atomic.Int64

	mu     sync.Mutex
	events []func(now time.Duration) // bounded by the calls that are under way
	spare  []func(now time.Duration) // an empty list, for the next events

	goroutines sync.WaitGroup
}

// newDriver makes a driver whose goroutines have not begun. ctx only carries
// values; number is the first claim number.
func newDriver(ctx context.Context, q *Queue, index int, number uint64) *driver {
	d := &driver{
		shutdown: newShutdown(ctx), queue: q, index: index, log: q.config.Logger.With("shard", index),
		store: q.config.Store(index), news: make(chan struct{}, 1), hint: make(chan struct{}, 1),
	}
	wake := func(what *atomic.Bool) func() {
		return func() {
			what.Store(true)
			wait.Wake(d.news)
		}
	}
	d.shard = NewShard(q, index, number, d, Wakes{Outcomes: d.news, Room: wake(&d.hasRoom), Rates: wake(&d.isAllowed)})
	d.lastLook.Store(int64(q.Now()))
	return d
}

// loop is the goroutine of the shard. It returns when the drain is over.
func (d *driver) loop() {
	defer d.shutdown.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, more := d.step()
		if !more {
			break
		}
		d.sleep(timer, next)
	}
	d.goroutines.Wait()
	d.leave()
}

// step tells the shard what has happened, and has it act. No error and no panic ends the loop.
func (d *driver) step() (next time.Duration, more bool) {
	s, now := d.shard, d.queue.Now()
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(d.log, "claim", cause)
			next, more = s.BackOff(now), true
		}
	}()
	d.mu.Lock()
	events := d.events
	d.events, d.spare = d.spare, events[:0]
	d.mu.Unlock()
	if d.isCut() {
		s.Cut()
	}
	if d.isStopping() {
		s.Drain()
	}
	if d.callCtx.Err() != nil {
		s.End()
	}
	if d.hasRoom.Swap(false) {
		s.Woken(now)
	}
	if d.isAllowed.Swap(false) {
		s.Allowed()
	}
	for i, event := range events {
		d.tell(event, now)
		events[i] = nil
	}
	if !s.IsWaiting() {
		d.lastLook.Store(int64(now))
	}
	return s.Step(now)
}

// tell tells the shard of one event. A panic is of this event alone.
func (d *driver) tell(event func(time.Duration), now time.Duration) {
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(d.log, "claim", cause)
			d.shard.BackOff(now)
		}
	}()
	event(now)
}

// sleep waits until then, or until something happens.
func (d *driver) sleep(timer *time.Timer, until time.Duration) {
	now := d.queue.Now()
	hint, stop, over := d.hint, d.stop, d.callCtx.Done()
	if !d.shard.Hears(now) {
		hint = nil // It stays in the channel until it can be followed.
	}
	if d.shard.IsDraining() {
		stop = nil
	}
	if d.shard.IsOver() {
		over = nil
	}
	timer.Reset(until - now)
	select {
	case <-timer.C:
	case <-d.news:
	case <-hint:
		d.shard.Hinted()
	case <-stop:
	case <-over:
	}
}

// drain ends the shard, see [shutdown.drain].
func (d *driver) drain(ctx context.Context) error {
	if err := d.shutdown.drain(ctx); err != nil {
		return fmt.Errorf("drain shard %d: %w", d.index, err)
	}
	return nil
}

// leave gives the lease up, so that another instance need not wait for it to lapse.
func (d *driver) leave() {
	d.shard.Leave()
	if d.callCtx.Err() != nil {
		return
	}
	if err := d.call("drain", func(ctx context.Context) error { return d.store.HandOver(ctx, d.queue.config.Instance) }); err != nil {
		d.log.Warn("lease not handed over, it lapses by itself", "event", "drain", "err", err)
	}
}

// post has the loop tell the shard something.
func (d *driver) post(event func(now time.Duration)) {
	d.mu.Lock()
	d.events = append(d.events, event)
	d.mu.Unlock()
	wait.Wake(d.news)
}

// call limits a call's time. A panic in it is no answer.
func (d *driver) call(event string, call func(context.Context) error) (err error) {
	defer recovered(d.log, event, &err)
	ctx, cancel := context.WithTimeout(d.callCtx, d.queue.config.Claims.callTimeout())
	defer cancel()
	return call(ctx)
}

// ask makes a call to the store in its own goroutine, and reports its end to the shard.
func ask[T any](d *driver, event string, call func(context.Context) (T, error), tell func(now time.Duration, answer T, err error)) {
	d.goroutines.Go(func() {
		var answer T
		err := d.call(event, func(ctx context.Context) (err error) {
			answer, err = call(ctx)
			return err
		})
		d.post(func(now time.Duration) { tell(now, answer, err) })
	})
}

// Claim implements [Calls].
func (d *driver) Claim(request message.ClaimRequest) {
	if request.Max > 0 && request.Slot == 0 {
		drainSignal(d.hint) // What it hints at, this claim sees.
	}
	var received time.Duration
	ask(d, "claim", func(ctx context.Context) (message.Claim, error) {
		claim, err := d.store.Claim(ctx, request)
		received = d.queue.Now()
		return claim, err
	}, func(now time.Duration, claim message.Claim, err error) { d.shard.Claimed(now, claim, received, err) })
}

// Reclaim implements [Calls].
func (d *driver) Reclaim(which message.Reclaim) {
	more := false
	ask(d, "reclaim", func(ctx context.Context) (reclaimed int, err error) {
		reclaimed, more, err = d.store.Reclaim(ctx, which)
		return reclaimed, err
	}, func(now time.Duration, reclaimed int, err error) { d.shard.Reclaimed(now, reclaimed, more, err) })
}

// Parked implements [Calls].
func (d *driver) Parked() { ask(d, "claim", d.store.Parked, d.shard.Loaded) }

// NoLayout implements [Calls].
func (d *driver) NoLayout() {
	ask(d, "claim", func(ctx context.Context) (none struct{}, err error) {
		d.queue.config.Hooks.OnNoLayout(ctx, d.index)
		return none, nil
	}, func(now time.Duration, _ struct{}, _ error) { d.shard.Reported(now) })
}

// Confirm implements [Calls].
func (d *driver) Confirm(b *batch.Batch) {
	ask(d, "claim", func(ctx context.Context) (none struct{}, err error) { return none, d.store.Confirm(ctx, b.Token) },
		func(now time.Duration, _ struct{}, err error) { d.shard.Confirmed(now, b, err) })
}

// Topics implements [Calls].
func (d *driver) Topics(b *batch.Batch, indices []int) {
	ask(d, "claim", d.queue.config.Topics.Ask,
		func(now time.Duration, topics message.Topics, err error) {
			d.shard.ToldTopics(now, b, indices, topics, err)
		})
}

// Settle implements [Calls].
func (d *driver) Settle(b *batch.Batch, settlement message.Settlement) {
	ask(d, "settle", func(ctx context.Context) (stale bool, err error) { return d.store.Settle(ctx, settlement) },
		func(now time.Duration, stale bool, err error) { d.shard.Settled(now, b, stale, err) })
}

// Publish implements [Calls]. A sink's calls last for as long as it needs, or until they are cut.
func (d *driver) Publish(c *batch.Publication, messages []message.Message) {
	d.goroutines.Go(func() {
		err := d.publish(c, messages)
		d.post(func(time.Duration) { c.Return(err) })
	})
}

func (d *driver) publish(c *batch.Publication, messages []message.Message) (err error) {
	defer recovered(d.log, "publish", &err)
	d.queue.config.Sink.Publish(d.publishCtx, messages, c.Outcomes)
	return nil
}

// maxDrainMargin is the longest time kept at the end of a drain for settling
// what was cut short.
const maxDrainMargin = 3 * time.Second

// shutdown is how a shard ends: publishing first, the calls of the store last. Both
// outlive the claiming, in a drain for as long as its budget allows.
type shutdown struct {
	publishCtx, callCtx       context.Context // end what is being published, and the calls of the store
	cancelPublish, cancelCall context.CancelFunc
	stop                      chan struct{} // closed: claim no more, and begin no publish
	stopOnce                  sync.Once
	done                      chan struct{} // closed: all goroutines have ended
}

// newShutdown begins nothing; ctx only carries values.
func newShutdown(ctx context.Context) *shutdown {
	ctx = context.WithoutCancel(ctx)
	s := &shutdown{stop: make(chan struct{}), done: make(chan struct{})}
	s.publishCtx, s.cancelPublish = context.WithCancel(ctx)
	s.callCtx, s.cancelCall = context.WithCancel(ctx)
	return s
}

// isStopping reports whether nothing is to begin any more.
func (s *shutdown) isStopping() bool { return closed(s.stop) }

// isCut reports whether publishing was cut short.
func (s *shutdown) isCut() bool { return s.publishCtx.Err() != nil }

// drain stops claiming, waits for what is in flight until shortly before ctx
// ends, then cuts publishing, and the settling last. It may be called twice.
func (s *shutdown) drain(ctx context.Context) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultDrain)
		defer cancel()
	}
	s.stopOnce.Do(func() { close(s.stop) })
	deadline, _ := ctx.Deadline()
	budget := time.Until(deadline)
	margin := min(maxDrainMargin, budget/4)
	defer time.AfterFunc(budget-margin, s.cancelPublish).Stop()
	defer time.AfterFunc(budget-margin/4, s.cancelCall).Stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.cancelPublish()
	s.cancelCall()
	if closed(s.done) {
		return nil
	}
	return ctx.Err()
}

// end lets go of what a shard whose goroutines end does not need any more.
func (s *shutdown) end() {
	s.cancelCall()
	s.cancelPublish()
	close(s.done)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func drainSignal(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
