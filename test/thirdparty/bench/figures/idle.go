package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// idleCase is a set of bridges that have nothing to do.
type idleCase struct{ instances, queues, shards, waiting int }

// idleFigure measures what idle bridges cost: all Redis commands, those inside
// scripts too, the processor time, and what is open.
func idleFigure(ctx context.Context, r run) error {
	cases := []idleCase{{1, 1, r.shards, 0}, {1, 1, 64, 0}, {1, 1, 1024, 0}, {1, 1, r.shards, 1000}}
	for _, shards := range []int{16, 256} {
		for _, instances := range []int{1, 3, 10} {
			cases = append(cases, idleCase{instances, 1, shards, 0})
		}
	}
	cases = append(cases, idleCase{1, 64, 16, 0})
	fmt.Printf("%-6s %-8s %9s %6s %6s %7s | %8s %11s | %8s %10s %9s | %10s %11s\n", "idle", "broker", "instances", "queues", "shards",
		"waiting", "sent/s", "in all/s", "Redis %", "bridges %", "worst %", "goroutines", "connections")
	for _, c := range cases {
		if err := r.idle(ctx, c); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func (r run) idle(ctx context.Context, c idleCase) error {
	options := trial.Options{Shards: c.shards}
	for n := range c.queues - 1 {
		options.Queues = append(options.Queues, fmt.Sprintf("more-%d", n))
	}
	w, err := r.world(ctx, options)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := startMore(ctx, w, c.instances); err != nil {
		return err
	}
	if c.waiting > 0 {
		if err := fill(ctx, w, filling{count: c.waiting, due: time.Now().Add(24 * time.Hour)}); err != nil {
			return err
		}
	}
	if err := trial.Sleep(ctx, 8*time.Second); err != nil { // More than a lease: all shards have their holders.
		return err
	}
	before, err := look(ctx, w)
	if err != nil {
		return err
	}
	if err := trial.Sleep(ctx, r.window); err != nil {
		return err
	}
	after, err := look(ctx, w)
	if err != nil {
		return err
	}
	sent, err := countSent(ctx, w, r.window) // Not at the same time: it costs Redis something itself.
	if err != nil {
		return err
	}
	return c.print(ctx, r, w, before, after, sent)
}

func (c idleCase) print(ctx context.Context, r run, w *trial.World, before, after spent, sent float64) error {
	seconds := after.at.Sub(before.at).Seconds()
	all := 0.0
	for name, n := range after.commands {
		if name == "info" {
			continue
		}
		all += float64(n-before.commands[name]) / seconds
	}
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / seconds }
	var bridgeCPU, worst time.Duration
	for i, cpu := range after.bridges {
		bridgeCPU += cpu - before.bridges[i]
		worst = max(worst, cpu-before.bridges[i])
	}
	goroutines := 0.0
	for _, b := range w.Bridges() {
		n, err := b.Metric(ctx, "go_goroutines")
		if err != nil {
			return err
		}
		goroutines += n
	}
	fmt.Printf("%-6s %-8s %9d %6d %6d %7d | %8.1f %11.1f | %8.2f %10.2f %9.2f | %10.0f %11d\n", "idle", r.broker, c.instances, c.queues,
		c.shards, c.waiting, sent, all, percent(after.redis-before.redis), percent(bridgeCPU), percent(worst), goroutines, after.connections)
	return nil
}

// countSent counts, for a while, what clients send to Redis in a second: MONITOR
// tells it from what scripts call, which INFO does not.
func countSent(ctx context.Context, w *trial.World, window time.Duration) (float64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", w.Redis.Addr())
	if err != nil {
		return 0, fmt.Errorf("monitor: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	until := time.Now().Add(window)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, fmt.Errorf("monitor: %w", err)
	}
	_ = conn.SetReadDeadline(until)
	sent := -1 // The first line is the answer.
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if !strings.Contains(lines.Text(), " lua] ") {
			sent++
		}
	}
	return float64(sent) / window.Seconds(), ctx.Err()
}

// spent is what has been used up to now.
type spent struct {
	at          time.Time
	commands    map[string]int
	redis       time.Duration
	bridges     []time.Duration
	connections int
}

func look(ctx context.Context, w *trial.World) (u spent, err error) {
	u.at = time.Now()
	for _, b := range w.Bridges() {
		u.bridges = append(u.bridges, b.CPU())
	}
	info, err := redisInfo(ctx, w)
	if err != nil {
		return u, err
	}
	clients, err := strconv.Atoi(info["connected_clients"])
	if err != nil {
		return u, fmt.Errorf("INFO: %w", err)
	}
	u.redis = trial.CPUBelow(w.Redis.Dir())
	u.connections = clients - int(w.RDB.PoolStats().TotalConns) // Those of the bridges.
	u.commands = map[string]int{}
	for name, value := range info {
		command, found := strings.CutPrefix(name, "cmdstat_")
		if !found {
			continue
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if u.commands[command], err = strconv.Atoi(number); err != nil {
			return u, err
		}
	}
	return u, nil
}

// redisInfo reads all of INFO.
func redisInfo(ctx context.Context, w *trial.World) (map[string]string, error) {
	text, err := w.RDB.Info(ctx, "everything").Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info, nil
}
