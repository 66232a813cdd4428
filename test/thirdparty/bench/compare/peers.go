package main

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

// rivals are all that deliver to a handler which does nothing.
var rivals = []rival{
	{name: oursName, batch: true, part: 1, start: onRedis(func(ctx context.Context, _ *bench, m *memory) (peer, error) { return newOurs(ctx, m) })},
	{name: "asynq", part: 1, start: onRedis(func(_ context.Context, _ *bench, m *memory) (peer, error) { return newAsynq(m), nil })},
	{name: "BullMQ", batch: true, part: 1, start: startBull},
	{name: "patent, 1 shard", batch: true, part: 4, start: onRedis(func(_ context.Context, _ *bench, m *memory) (peer, error) {
		return &patent{loops: loops{rdb: m.rdb}, shards: 1}, nil
	})},
	{name: "patent, 8 shards", batch: true, part: 1, start: onRedis(func(_ context.Context, _ *bench, m *memory) (peer, error) {
		return &patent{loops: loops{rdb: m.rdb}, shards: shards}, nil
	})},
	{name: "naive, 10 pollers", batch: true, part: 1, start: onRedis(func(_ context.Context, _ *bench, m *memory) (peer, error) {
		return &naive{loops: loops{rdb: m.rdb}, pollers: 10}, nil
	})},
	{name: "NATS schedules", batch: true, part: 1, start: startSchedules},
}

func openPeers(ctx context.Context, b *bench) (*field, error) {
	f := &field{close: func() {}}
	for _, v := range rivals {
		f.contenders = append(f.contenders, v.on(b))
	}
	version, err := redisVersion(ctx)
	f.versions = []string{
		version, "asynq " + moduleVersion("github.com/hibiken/asynq"), "BullMQ " + bullVersion(), natsVersion(),
	}
	return f, err
}

// onRedis starts a peer that has a Redis, and works in this process.
func onRedis(open func(context.Context, *bench, *memory) (peer, error)) func(context.Context, *bench) (*stage, error) {
	return func(ctx context.Context, b *bench) (*stage, error) {
		m, err := startRedis(ctx)
		if err != nil {
			return nil, err
		}
		p, err := open(ctx, b, m)
		if err != nil {
			m.close()
			return nil, err
		}
		return &stage{
			peer: p, bytes: m.bytes, end: m.close,
			cpu: map[metric]func() time.Duration{cpuRedis: ofServer(m.Server), cpuClient: ofSelf},
		}, nil
	}
}

// startBull counts Node's processor time instead of ours.
func startBull(ctx context.Context, b *bench) (*stage, error) {
	st, err := onRedis(func(ctx context.Context, b *bench, m *memory) (peer, error) { return newBull(ctx, b.root, m) })(ctx, b)
	if err != nil {
		return nil, err
	}
	if p, ok := st.peer.(*bull); ok {
		st.cpu[cpuClient] = func() time.Duration { return trial.CPU(p.process.Process.Pid) }
	}
	return st, nil
}

func startSchedules(ctx context.Context, _ *bench) (*stage, error) {
	server, err := service.StartNATS(ctx, "")
	if err != nil {
		return nil, err
	}
	p, err := newSchedules(ctx, server)
	if err != nil {
		server.Close()
		return nil, err
	}
	return onServer(server, p, p.bytes), nil
}

// onServer is the stage of a peer that has a server of its own.
func onServer(server *service.Server, p peer, bytes func(context.Context) (float64, error)) *stage {
	return &stage{
		peer: p, bytes: bytes, end: server.Close,
		cpu: map[metric]func() time.Duration{cpuBroker: ofServer(server), cpuClient: ofSelf},
	}
}
