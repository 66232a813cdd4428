package poller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// driver runs a [shard]: it has the clock, sleeps, makes its calls, each in a goroutine of
// its own, and tells it what comes of them. All that it tells, its one loop does. Its
// goroutines end after drain, or at the latest when its contexts end and the sink and the
// store return.
type driver struct {
	*shutdown
	shard *shard
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

	goroutines sync.WaitGroup
}

// newDriver makes a driver whose goroutines have not begun. ctx only carries
// values; number is the first claim number.
func newDriver(ctx context.Context, c *common, index int, number uint64) *driver {
	d := &driver{
		shutdown: newShutdown(ctx), store: c.config.Store(index), news: make(chan struct{}, 1), hint: make(chan struct{}, 1),
	}
	d.shard = newShard(c, index, number, d)
	d.shard.changed = d.news
	d.shard.turn.share = c.config.Sink.Window.Join(func() {
		d.hasRoom.Store(true)
		signal(d.news)
	})
	d.shard.quota.wake = func() {
		d.isAllowed.Store(true)
		signal(d.news)
	}
	d.lastLook.Store(int64(c.clock.now()))
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
	s := d.shard
	now := s.clock.now()
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "claim", cause)
			s.backOff()
			next, more = s.times.quietUntil, true
		}
	}()
	d.mu.Lock()
	events := d.events
	d.events = nil
	d.mu.Unlock()
	s.isCut = d.isCut()
	if d.isStopping() {
		s.drain()
	}
	if d.callCtx.Err() != nil {
		s.end(now)
	}
	if d.hasRoom.Swap(false) {
		s.woken(now)
	}
	if d.isAllowed.Swap(false) {
		s.allowed()
	}
	for i, event := range events {
		d.tell(event, now)
		events[i] = nil
	}
	if !s.asking.isUnderWay {
		d.lastLook.Store(int64(now))
	}
	return s.step(now)
}

// tell tells the shard of one event. A panic is of this event alone.
func (d *driver) tell(event func(time.Duration), now time.Duration) {
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(d.shard.log, "claim", cause)
			d.shard.backOff()
		}
	}()
	event(now)
}

// sleep waits until then, or until something happens.
func (d *driver) sleep(timer *time.Timer, until time.Duration) {
	now := d.shard.clock.now()
	hint, stop, over := d.hint, d.stop, d.callCtx.Done()
	if !d.shard.hears(now) {
		hint = nil // It stays in the channel until it can be followed.
	}
	if d.shard.isDraining {
		stop = nil
	}
	if d.shard.isOver {
		over = nil
	}
	timer.Reset(until - now)
	select {
	case <-timer.C:
	case <-d.news:
	case <-hint:
		d.shard.hinted()
	case <-stop:
	case <-over:
	}
}

// drain ends the shard, see [shutdown.drain].
func (d *driver) drain(ctx context.Context) error {
	if err := d.shutdown.drain(ctx); err != nil {
		return fmt.Errorf("drain shard %d: %w", d.shard.index, err)
	}
	return nil
}

// leave gives the lease up, so that another instance need not wait for it to lapse.
func (d *driver) leave() {
	s := d.shard
	s.leave()
	if d.callCtx.Err() != nil {
		return
	}
	if err := d.call("drain", func(ctx context.Context) error { return d.store.HandOver(ctx, s.config.Instance) }); err != nil {
		s.log.Warn("lease not handed over, it lapses by itself", "event", "drain", "err", err)
	}
}

// post has the loop tell the shard something.
func (d *driver) post(event func(now time.Duration)) {
	d.mu.Lock()
	d.events = append(d.events, event)
	d.mu.Unlock()
	signal(d.news)
}

// call limits a call's time. A panic in it is no answer.
func (d *driver) call(event string, call func(context.Context) error) (err error) {
	defer recovered(d.shard.log, event, &err)
	ctx, cancel := d.limited()
	defer cancel()
	return call(ctx)
}

// limited is the context of one call.
func (d *driver) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.callCtx, d.shard.config.Claims.callTimeout())
}

func (d *driver) claim(request message.ClaimRequest) {
	if request.Max > 0 && request.Slot == 0 {
		drainSignal(d.hint) // What it hints at, this claim sees.
	}
	d.goroutines.Go(func() {
		var claim message.Claim
		err := d.call("claim", func(ctx context.Context) (err error) {
			claim, err = d.store.Claim(ctx, request)
			return err
		})
		received := d.shard.clock.now()
		d.post(func(now time.Duration) { d.shard.claimed(now, claim, received, err) })
	})
}

func (d *driver) reclaim(which message.Reclaim) {
	d.goroutines.Go(func() {
		reclaimed, more := 0, false
		err := d.call("reclaim", func(ctx context.Context) (err error) {
			reclaimed, more, err = d.store.Reclaim(ctx, which)
			return err
		})
		d.post(func(now time.Duration) { d.shard.reclaimed(now, reclaimed, more, err) })
	})
}

func (d *driver) parked() {
	d.goroutines.Go(func() {
		var parked []message.ParkedRoute
		err := d.call("claim", func(ctx context.Context) (err error) {
			parked, err = d.store.Parked(ctx)
			return err
		})
		d.post(func(now time.Duration) { d.shard.loaded(now, parked, err) })
	})
}

func (d *driver) noLayout() {
	d.goroutines.Go(func() {
		_ = d.call("claim", func(ctx context.Context) error {
			d.shard.config.Hooks.OnNoLayout(ctx, d.shard.index)
			return nil
		})
		d.post(d.shard.reported)
	})
}

func (d *driver) confirm(b *batch) {
	d.goroutines.Go(func() {
		err := d.call("claim", func(ctx context.Context) error { return d.store.Confirm(ctx, b.claim.Token) })
		d.post(func(now time.Duration) { d.shard.confirmed(now, b, err) })
	})
}

func (d *driver) topics(b *batch, indices []int) {
	d.goroutines.Go(func() {
		var topics message.Topics
		err := d.call("claim", func(ctx context.Context) (err error) {
			topics, err = d.shard.config.Topics.Ask(ctx)
			return err
		})
		d.post(func(now time.Duration) { d.shard.toldTopics(now, b, indices, topics, err) })
	})
}

func (d *driver) settle(b *batch) {
	settlement := b.settling.settlement
	d.goroutines.Go(func() {
		stale := false
		err := d.call("settle", func(ctx context.Context) (err error) {
			stale, err = d.store.Settle(ctx, settlement)
			return err
		})
		d.post(func(now time.Duration) { d.shard.settled(now, b, stale, err) })
	})
}

// publish answers for a sink that panics or leaves outcomes out.
func (d *driver) publish(c *call, batch []message.Message) {
	d.goroutines.Go(func() {
		rest := sinks.Failed(sinks.Unknown, reasonNoOutcome, errNoOutcome)
		defer func() {
			if cause := recover(); cause != nil {
				logPanic(d.shard.log, "publish", cause)
				reason := reasonPanic
				if len(batch) == 1 {
					reason = reasonPanicAlone
				}
				rest = sinks.Failed(sinks.Unknown, reason, fmt.Errorf("sink panicked: %v", cause))
			}
			c.hasReturned.Store(true)
			c.outcomes.Rest(rest)
		}()
		d.shard.config.Sink.Publish(d.publishCtx, batch, c.outcomes)
	})
}
