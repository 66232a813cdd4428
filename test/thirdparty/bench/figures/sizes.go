package main

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/sizing"
	"github.com/delaybridge/delaybridge/test/trial"
)

// sizesFigure measures the constants of package sizing: bytes of a waiting message in memory and on
// disk, what a reload and a fork take, and the bytes of a row. -count is how many wait (1,000,000).
func sizesFigure(ctx context.Context, r run) error {
	for _, shape := range []shape{{26, 0}, {26, 256}, {64, 256}, {26, 1024}, {26, 4096}} {
		if err := r.memoryOf(ctx, shape); err != nil {
			return err
		}
	}
	if err := r.storage(ctx, cmp.Or(r.count, 1_000_000)); err != nil {
		return err
	}
	return r.eachDatabase(func(name string) error { return r.rowsOf(ctx, name) })
}

// shape is a message: bytes of its id and its body.
type shape struct{ id, body int }

// usual is what docs/performance.md has everywhere.
var usual = shape{26, 256}

// fill schedules random bodies, which nothing can compress, for one instant after the other.
func (s shape) fill(ctx context.Context, w *trial.World, prefix string, count int, due time.Time) error {
	var group errgroup.Group
	group.SetLimit(8)
	const batch = 500
	for start := 0; start < count; start += batch {
		group.Go(func() error {
			requests := make([]delay.Request, min(batch, count-start))
			for i := range requests {
				body := make([]byte, s.body)
				_, _ = crand.Read(body) // It never fails.
				n := start + i
				requests[i] = delay.Request{
					Message: delay.Message{ID: fmt.Sprintf("%s%0*d", prefix, s.id-len(prefix), n), Topic: w.Topic, Body: body},
					When:    delay.At(due.Add(time.Duration(n) * time.Millisecond)),
				}
			}
			results, err := w.Client.ScheduleBatch(ctx, requests)
			for _, result := range results {
				err = errors.Join(err, result.Err)
			}
			return err
		})
	}
	return group.Wait()
}

func (r run) memoryOf(ctx context.Context, s shape) error {
	const count = 100_000
	w, err := r.world(ctx, trial.Options{Redis: []string{"--appendonly", "no"}})
	if err != nil {
		return err
	}
	defer w.Close()
	before, err := usedMemory(ctx, w)
	if err != nil {
		return err
	}
	if err := s.fill(ctx, w, "m", count, time.Now().Add(24*time.Hour)); err != nil {
		return err
	}
	after, err := usedMemory(ctx, w)
	plan := sizing.Plan{Rate: 1, Delay: count * time.Second, ID: s.id, Body: s.body, Topic: len(w.Topic), Shards: r.shards}
	fmt.Printf("memory   id %d, body %d: %.1f bytes a message, predicted %.1f\n", s.id, s.body, float64(after-before)/count, plan.MessageBytes())
	return err
}

// storage measures what is on disk, and what a restart, a rewrite and a replica take.
func (r run) storage(ctx context.Context, count int) error {
	w, err := r.world(ctx, trial.Options{Redis: []string{"--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0"}})
	if err != nil {
		return err
	}
	defer w.Close()
	s := stored{World: w, count: count}
	for _, step := range []func(context.Context) error{s.appended, s.reloaded, s.rewritten, s.reloaded, s.published, s.reloaded, s.trickled, s.copied, s.replicated} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stored is a Redis in which count messages wait.
type stored struct {
	*trial.World

	count int
	// peak is the most memory that was copied during a rewrite, in bytes.
	peak float64
}

// figure is a number of INFO.
func (s *stored) figure(ctx context.Context, name string) float64 {
	info, err := redisInfo(ctx, s.World)
	if err != nil {
		return -1
	}
	n, _ := strconv.ParseFloat(info[name], 64)
	return n
}

func (s *stored) appended(ctx context.Context) error {
	before, cpu := s.figure(ctx, "aof_current_size"), trial.CPUBelow(s.Redis.Dir())
	err := usual.fill(ctx, s.World, "s", s.count, time.Now().Add(24*time.Hour))
	fmt.Printf("append   a schedule %.0f bytes; Redis' memory %d MiB, resident %d MiB, CPU %.1f µs a message\n",
		(s.figure(ctx, "aof_current_size")-before)/float64(s.count), int64(s.figure(ctx, "used_memory"))>>20, int64(s.figure(ctx, "used_memory_rss"))>>20,
		each(trial.CPUBelow(s.Redis.Dir())-cpu, s.count))
	return err
}

func (s *stored) published(ctx context.Context) error {
	count := s.count / 2
	before := s.figure(ctx, "aof_current_size")
	if err := usual.fill(ctx, s.World, "p", count, time.Now().Add(-time.Hour)); err != nil {
		return err
	}
	if err := s.gone(ctx, int64(count)); err != nil {
		return err
	}
	fmt.Printf("append   a schedule, its claim and its settlement, in large batches: %.0f bytes\n", (s.figure(ctx, "aof_current_size")-before)/float64(count))
	return nil
}

// gone waits until so many have been published, those of before included.
func (s *stored) gone(ctx context.Context, count int64) error {
	for {
		totals, err := s.Totals(ctx)
		if err == nil && totals.Counters["published"] >= count {
			return nil
		}
		if failure := trial.Sleep(ctx, 100*time.Millisecond); failure != nil {
			return errors.Join(err, failure)
		}
	}
}

// trickled is a steady load: each message is scheduled, claimed and settled with few others, or alone.
func (s *stored) trickled(ctx context.Context) error {
	const count = 5_000
	before, cpu := s.figure(ctx, "aof_current_size"), trial.CPUBelow(s.Redis.Dir())
	begin := time.Now()
	for n := range count {
		if err := usual.fill(ctx, s.World, fmt.Sprintf("t%05d", n), 1, time.Now().Add(time.Second)); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	if err := s.gone(ctx, int64(s.count/2+count)); err != nil {
		return err
	}
	fmt.Printf("append   the same one by one, %.0f a second: %.0f bytes; CPU of Redis %.1f µs a message\n",
		rate(count, took), (s.figure(ctx, "aof_current_size")-before)/count, each(trial.CPUBelow(s.Redis.Dir())-cpu, count))
	return nil
}

// reloaded restarts Redis: its CPU says more than the time on a machine that does something else.
func (s *stored) reloaded(ctx context.Context) error {
	disk := s.figure(ctx, "aof_current_size")
	if err := s.Redis.Stop(); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.Redis.Start(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	fmt.Printf("reload   %d waiting, %.0f MiB on disk: %s, CPU %.1f s, %.1f µs a message\n", s.count, disk/(1<<20), ms(took),
		s.figure(ctx, "used_cpu_user")+s.figure(ctx, "used_cpu_sys"), 1e6*(s.figure(ctx, "used_cpu_user")+s.figure(ctx, "used_cpu_sys"))/float64(s.count)) //nolint:mnd // µs in a s
	return nil
}

func (s *stored) rewrite(ctx context.Context) (took time.Duration, err error) {
	begin := time.Now()
	if err := s.RDB.BgRewriteAOF(ctx).Err(); err != nil {
		return 0, err
	}
	s.peak = 0
	for s.figure(ctx, "aof_rewrite_in_progress") != 0 {
		s.peak = max(s.peak, s.figure(ctx, "current_cow_peak"))
		if err := trial.Sleep(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

func (s *stored) rewritten(ctx context.Context) error {
	cpu := s.figure(ctx, "used_cpu_user_children") + s.figure(ctx, "used_cpu_sys_children")
	took, err := s.rewrite(ctx)
	cpu = s.figure(ctx, "used_cpu_user_children") + s.figure(ctx, "used_cpu_sys_children") - cpu
	fmt.Printf("rewrite  %s, CPU %.1f s, %.1f µs a message; base %.0f bytes a message; fork %.0f ms for %.0f MiB\n",
		ms(took), cpu, 1e6*cpu/float64(s.count), s.figure(ctx, "aof_base_size")/float64(s.count), s.figure(ctx, "latest_fork_usec")/1000, s.figure(ctx, "used_memory")/(1<<20))
	return err
}

// copied rewrites while others write, and counts what they made the kernel copy.
func (s *stored) copied(ctx context.Context) error {
	before, begin := s.figure(ctx, "total_commands_processed"), time.Now()
	written := 0
	write := func(ctx context.Context) error {
		for ctx.Err() == nil {
			const some = 500
			if err := usual.fill(context.WithoutCancel(ctx), s.World, fmt.Sprintf("c%d-", written), some, time.Now().Add(time.Hour+time.Duration(written)*time.Second)); err != nil {
				return err
			}
			written += some
		}
		return nil
	}
	var took time.Duration
	err := trial.While(ctx, write, func(ctx context.Context) (err error) { took, err = s.rewrite(ctx); return err })
	cow := s.peak
	fmt.Printf("fork     %d schedules in batches within a rewrite of %s: %.0f MiB copied, %.0f bytes a schedule (%.0f commands in %s)\n",
		written, ms(took), cow/(1<<20), cow/float64(max(written, 1)), s.figure(ctx, "total_commands_processed")-before, ms(time.Since(begin)))
	return err
}

func (s *stored) replicated(ctx context.Context) error {
	begin := time.Now()
	replica, err := service.StartRedis(ctx, "--replicaof", strings.Replace(s.Redis.Addr(), ":", " ", 1))
	if err != nil {
		return err
	}
	defer replica.Close()
	for s.figure(ctx, "connected_slaves") == 0 || s.figure(ctx, "rdb_bgsave_in_progress") != 0 || !s.online(ctx) {
		if err := trial.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	fmt.Printf("replica  %d messages are there after %s\n", s.count, ms(time.Since(begin)))
	return nil
}

func (s *stored) online(ctx context.Context) bool {
	info, err := redisInfo(ctx, s.World)
	return err == nil && strings.Contains(info["slave0"], "state=online")
}

// rowsOf measures rows that wait, and rows whose messages were published.
func (r run) rowsOf(ctx context.Context, database string) error {
	const count = 100_000
	b, err := r.boxed(ctx, "rows", database, horizonTime.String())
	if err != nil {
		return err
	}
	defer b.close()
	for name, first := range map[string]time.Time{"wait": time.Now().Add(48 * time.Hour), "ended": time.Now().Add(-time.Hour)} {
		before, err := b.tableBytes(ctx)
		if err != nil {
			return err
		}
		if err := insert(ctx, b.World, rows{ids: name, topic: b.Topic, count: count, first: first, over: time.Minute}); err != nil {
			return err
		}
		if err := b.ended(ctx, name == "ended", count); err != nil {
			return err
		}
		after, err := b.tableBytes(ctx)
		b.say("%d rows that %s: %.0f bytes each", count, name, float64(after-before)/count)
		if err != nil {
			return err
		}
	}
	return nil
}

// ended waits until the rows say so, if they are to end.
func (b *boxed) ended(ctx context.Context, isMeant bool, count int) error {
	for isMeant {
		var n int
		if err := b.Database.DB.QueryRowContext(ctx, "SELECT count(*) FROM delay_outbox WHERE status = 2").Scan(&n); err != nil {
			return err
		}
		if n >= count {
			break
		}
		if err := trial.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// tableBytes is what the table takes, with its indexes.
func (b *boxed) tableBytes(ctx context.Context) (n int64, err error) {
	query := "SELECT pg_total_relation_size('delay_outbox')"
	if b.Database.Kind != "postgres" {
		query = "SELECT data_length + index_length FROM information_schema.tables WHERE table_name = 'delay_outbox'"
		if _, err := b.Database.DB.ExecContext(ctx, "ANALYZE TABLE delay_outbox"); err != nil {
			return 0, err
		}
	}
	err = b.Database.DB.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
