package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// peer is a way to have messages delivered later to a handler that does nothing.
type peer interface {
	schedule(ctx context.Context, l load) error
	// deliver begins to deliver, or goes on with another load.
	deliver(ctx context.Context, to *arrivals) error
	close(ctx context.Context) error
}

// stage is a peer with its servers.
type stage struct {
	peer

	// cpu says what has been used, by metric.
	cpu map[metric]func() time.Duration
	// bytes is what all that waits takes.
	bytes func(ctx context.Context) (float64, error)
	end   func() // of the servers
}

// rival is how a peer is measured.
type rival struct {
	name  string
	batch bool // it takes several messages a call
	// part of the messages is drained, to keep slow ones short: one in so many.
	part  int
	start func(ctx context.Context, b *bench) (*stage, error)
}

// farAway is when messages are due that only wait.
const farAway = 24 * time.Hour

// on returns the rival as a contender.
func (v rival) on(b *bench) contender {
	return contender{name: v.name, measure: func(ctx context.Context) (s sample, err error) {
		st, err := v.start(ctx, b)
		if err != nil {
			return nil, err
		}
		defer st.end()
		defer func() { err = errors.Join(err, st.close(context.WithoutCancel(ctx))) }()
		m := &measurement{stage: st, rival: v, bench: b, sample: sample{}}
		if err := m.one(ctx, b.count); err != nil {
			return m.sample, err
		}
		if err := m.drain(ctx, b.count/v.part); err != nil {
			return m.sample, fmt.Errorf("drain: %w", err)
		}
		if err := m.punctuality(ctx, int(b.window/time.Millisecond)); err != nil {
			return m.sample, fmt.Errorf("1,000 a second: %w", err)
		}
		return m.sample, nil
	}}
}

// measurement is one measurement of a peer.
type measurement struct {
	*stage
	rival

	bench  *bench
	sample sample
	next   int // the first number that is free
}

// one measures how fast messages are scheduled one by one, to be due long after.
func (t *measurement) one(ctx context.Context, count int) (err error) {
	due := time.Now().Add(farAway)
	t.sample[rateLone], err = t.pace(ctx, load{count: count / 40, size: 1, callers: 1, due: due})
	if err == nil {
		t.sample[rateMany], err = t.pace(ctx, load{count: count / 10, size: 1, callers: 64, due: due})
	}
	return err
}

// pace schedules under numbers that are free, and returns how many a second.
func (t *measurement) pace(ctx context.Context, l load) (float64, error) {
	l.first, t.next = t.next, t.next+l.count
	began := time.Now()
	if err := t.schedule(ctx, l); err != nil {
		return 0, fmt.Errorf("schedule: %w", err)
	}
	return float64(l.count) / time.Since(began).Seconds(), nil
}

// ahead is a load as large as that, in the way that is the fastest, due as soon
// as it can be scheduled before.
func (t *measurement) ahead(count int, step time.Duration) load {
	l := load{count: count, size: 1, callers: 64, step: step}
	if t.batch {
		l.size, l.callers = batchSize, 1
	}
	l.due = t.bench.ahead(count, int(t.sample[rateMany]*2/3))
	return l
}

// fill schedules a load ahead and begins to deliver it.
func (t *measurement) fill(ctx context.Context, l load) (*arrivals, float64, error) {
	to := newArrivals(load{first: t.next, count: l.count})
	rate, err := t.pace(ctx, l)
	if err == nil && time.Now().After(l.due) {
		err = errTooSlow
	}
	if err != nil {
		return nil, 0, err
	}
	return to, rate, t.deliver(ctx, to)
}

// drain measures messages that are due at one instant, for which all is ready,
// and what they take while they wait: all connections are open then.
func (t *measurement) drain(ctx context.Context, count int) error {
	before, err := t.bytes(ctx)
	if err != nil {
		return err
	}
	l := t.ahead(count, 0)
	to, rate, err := t.fill(ctx, l)
	if err != nil {
		return err
	}
	after, err := t.bytes(ctx)
	if err != nil {
		return err
	}
	t.sample[bytesEach] = (after - before) / float64(count)
	if t.batch {
		t.sample[rateBatch] = rate
	}
	if err := sleepUntil(ctx, l.due); err != nil {
		return err
	}
	meters := startMeters(t.cpu)
	at, err := to.wait(ctx)
	if err != nil {
		return err
	}
	meters.read(t.sample, count)
	slices.SortFunc(at, time.Time.Compare)
	t.sample[drainRate] = float64(count) / at[count-1].Sub(l.due).Seconds()
	t.sample[drainPace] = float64(count-1) / at[count-1].Sub(at[0]).Seconds()
	t.sample[twice] = float64(to.twice.Load())
	return nil
}

// punctuality measures messages that are due one a millisecond.
func (t *measurement) punctuality(ctx context.Context, count int) error {
	first := t.next
	l := t.ahead(count, time.Millisecond)
	to, _, err := t.fill(ctx, l)
	if err != nil {
		return err
	}
	at, err := to.wait(ctx)
	if err != nil {
		return err
	}
	l.first = first
	lateness(t.sample, at, l)
	t.sample[twice] += float64(to.twice.Load())
	return nil
}

// lateness says in milliseconds how late the messages of a load came.
func lateness(s sample, at []time.Time, l load) {
	late := make([]float64, len(at))
	for i := range at {
		late[i] = at[i].Sub(l.dueAt(l.first+i)).Seconds() * 1000
	}
	slices.Sort(late)
	s[lateMedian], s[late99], s[lateMost] = late[len(late)/2], late[len(late)*99/100], late[len(late)-1]
	s[earliest] = max(0, -late[0])
}
