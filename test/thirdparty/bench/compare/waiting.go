package main

import (
	"context"
	"fmt"
	"time"
)

// crowd is a Redis in which many messages wait while others come and go.
type crowd struct {
	*ours

	redis   *memory
	waiting int
	next    int // the first number that is free
}

// fewWaiting is what the many are compared with.
const fewWaiting = 10_000

func openWaiting(ctx context.Context, b *bench) (*field, error) {
	f, crowds := &field{}, []*crowd{}
	f.close = func() {
		for _, c := range crowds {
			_ = c.close(context.WithoutCancel(ctx)) // Nothing of it is needed any more.
			c.redis.close()
		}
	}
	for i, waiting := range []int{fewWaiting, b.waiting} {
		c, err := newCrowd(ctx, waiting)
		if c != nil {
			crowds = append(crowds, c)
		}
		if err != nil {
			f.close()
			return nil, err
		}
		f.contenders = append(f.contenders, contender{[]string{nameFew, nameMany}[i], func(ctx context.Context) (sample, error) {
			return c.measure(ctx, b)
		}})
	}
	version, err := redisVersion(ctx)
	f.versions = []string{version, fmt.Sprintf("%d and %d messages", fewWaiting, b.waiting)}
	return f, err
}

func newCrowd(ctx context.Context, waiting int) (*crowd, error) {
	m, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	o, err := newOurs(ctx, m)
	if err != nil {
		m.close()
		return nil, err
	}
	c := &crowd{ours: o, redis: m, waiting: waiting, next: waiting}
	// Due at different times, a day later at the earliest.
	return c, o.schedule(ctx, load{count: waiting, size: batchSize, callers: 2, due: time.Now().Add(farAway), step: time.Millisecond})
}

func (c *crowd) measure(ctx context.Context, b *bench) (sample, error) {
	s := sample{}
	l := load{first: c.next, count: b.count, size: batchSize, callers: 2, due: b.ahead(b.count, quickly)}
	c.next += b.count
	return s, c.drain(ctx, s, c.redis, l, int64(c.waiting))
}
