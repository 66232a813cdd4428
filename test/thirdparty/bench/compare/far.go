package main

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
	"github.com/delaybridge/delaybridge/test/trial"
)

func openFar(ctx context.Context, b *bench) (*field, error) {
	f, err := openBroker(ctx, b, "nats", func(broker trial.Broker) []contender {
		to := target{Broker: broker, makeTopic: broker.MakeTopic, dropTopic: dropStream(broker)}
		return []contender{
			{nameNear, b.drainedFrom(to, 0)}, {nameZone, b.drainedFrom(to, 5*time.Millisecond)}, {nameFar, b.drainedFrom(to, 50*time.Millisecond)},
		}
	})
	if err == nil {
		f.versions = append(f.versions, natsVersion())
	}
	return f, err
}

// drainedFrom measures the drain from a Redis of which each answer takes so much longer. Producers
// have it nearby.
func (b *bench) drainedFrom(to target, longer time.Duration) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		m, err := startRedis(ctx)
		if err != nil {
			return nil, err
		}
		defer m.close()
		way, err := faultproxy.New(ctx, m.Addr())
		if err != nil {
			return nil, err
		}
		defer way.Close()
		way.Delay(longer)
		w := &through{bench: b, rdb: m.rdb, to: to}
		return w.drained(ctx, fmt.Sprintf("{url: %q}", "redis://"+way.Addr()), ofServer(m.Server))
	}
}
