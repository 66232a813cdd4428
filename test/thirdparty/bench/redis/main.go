// Command redis measures what scheduling, claiming and settling cost, in time and
// in processor time of Redis, beside scripts that do nothing but the same writes:
// one variadic ZADD and HSET, one read of what is due, one ZREM and HDEL.
//
// It starts Redis itself, in memory only unless told otherwise. Ours and the raw
// scripts take their turn in each repetition; the figures are medians, and a ratio
// is that within a repetition.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	shards    = 8
	batchSize = 500
	bodySize  = 256
	patience  = 30 * time.Second // a busy machine is no error
)

type settings struct {
	count, repeat int
	log, alike    bool
	batches       bool
	servers       []string
}

func main() {
	var s settings
	flag.IntVar(&s.count, "count", 200000, "messages in batches, and drained; one by one it is a tenth of them, and a fortieth by a lone caller")
	flag.IntVar(&s.repeat, "repeat", 5, "repetitions")
	flag.BoolVar(&s.log, "aof", false, "with Redis' log of changes")
	flag.BoolVar(&s.alike, "alike", false, "all due at one instant, else each at its own millisecond")
	flag.BoolVar(&s.batches, "batches", false, "measure batches and the drain only")
	servers := flag.String("servers", "", "programs to run as redis-server, a comma list: they take their turn in each repetition; empty for the one that is found")
	flag.Parse()
	s.servers = strings.Split(*servers, ",")
	if s.count < batchSize || s.repeat < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func (s settings) run(ctx context.Context) error {
	var worlds []*world
	defer func() {
		for _, w := range worlds {
			w.close()
		}
	}()
	for _, program := range s.servers {
		w, err := s.start(ctx, program)
		if err != nil {
			return err
		}
		worlds = append(worlds, w)
	}
	for range s.repeat {
		for _, w := range worlds {
			if err := w.measure(ctx, s); err != nil {
				return err
			}
		}
	}
	for _, w := range worlds {
		fmt.Printf("%s; %d shards, batches of %d, %d bytes a body; medians of %d\n", w.version(ctx), shards, batchSize, bodySize, s.repeat)
		show(s.steps(nil), w.found)
	}
	return nil
}

// result is what one step has taken for each message: time, processor time of
// Redis and of this process.
type result struct{ took, server, client float64 } // µs

func measure(ctx context.Context, rdb *redis.Client, s step) (r result, err error) {
	server, err := serverTime(ctx, rdb)
	if err != nil {
		return r, err
	}
	client, began := clientTime(), time.Now()
	if err := s.do(ctx); err != nil {
		return r, err
	}
	took, used := time.Since(began), clientTime()-client
	spent, err := serverTime(ctx, rdb)
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(s.count) }
	return result{each(took), each(spent - server), each(used)}, err
}

func show(steps []step, found map[string][2][]result) {
	fmt.Printf("%-34s %10s %10s %7s | %s\n%-34s %10s %10s %7s | %7s %7s %7s | %7s %7s\n", "", "", "", "", "CPU of Redis, µs a message",
		"", "msgs/s", "raw", "ratio", "ours", "raw", "ratio", "client", "raw")
	total := [2][]result{}
	for _, step := range steps {
		list := found[step.name]
		printRow(step.name, list)
		for i := range list {
			if !step.sums {
				continue
			}
			if total[i] == nil {
				total[i] = make([]result, len(list[i]))
			}
			for n, r := range list[i] {
				t := &total[i][n]
				t.took, t.server, t.client = t.took+r.took, t.server+r.server, t.client+r.client
			}
		}
	}
	printRow("batches and drain together", total)
}

func printRow(name string, list [2][]result) {
	rate := func(r result) float64 { return 1e6 / r.took }
	server := func(r result) float64 { return r.server }
	client := func(r result) float64 { return r.client }
	fmt.Printf("%-34s %10.0f %10.0f %7.2f | %7.2f %7.2f %7.2f | %7.2f %7.2f\n", name, median(list[0], rate), median(list[1], rate), ratio(list, rate),
		median(list[0], server), median(list[1], server), ratio(list, server), median(list[0], client), median(list[1], client))
}

func median(list []result, of func(result) float64) float64 {
	values := make([]float64, len(list))
	for i, r := range list {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratio is the median of those within a repetition: what else the machine did
// then, both have felt.
func ratio(list [2][]result, of func(result) float64) float64 {
	values := make([]float64, len(list[0]))
	for i := range values {
		values[i] = of(list[0][i]) / of(list[1][i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
