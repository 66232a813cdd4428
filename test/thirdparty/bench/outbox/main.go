// Command outbox measures how many messages a second go from a producer's commit
// in PostgreSQL to Redis, and what that costs, beside a plain INSERT of the same
// rows and beside River's insert of as many rows.
//
// It starts PostgreSQL, with fsync, and Redis, with its log of changes, itself.
// All variants take their turn in each repetition; the figures are medians, and a
// ratio is that within a repetition.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

type settings struct {
	count, repeat, producers int
	sizes                    []int
	variants                 string
}

func main() {
	var s settings
	var sizes string
	role := flag.String("role", "", "for its own use: be the relay or the settler of -queue, with the servers in the environment")
	queue := flag.String("queue", "", "for its own use, see -role")
	flag.IntVar(&s.count, "count", 100000, "messages a measurement in the largest transactions; less in small ones, see the output")
	flag.IntVar(&s.repeat, "repeat", 5, "repetitions")
	flag.IntVar(&s.producers, "producers", 4, "goroutines that commit, each with a connection")
	flag.StringVar(&sizes, "sizes", "1,10,100", "messages a transaction, a comma list")
	flag.StringVar(&s.variants, "variants", "", "only the variants that contain this")
	flag.Parse()
	for text := range strings.SplitSeq(sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			flag.Usage()
			os.Exit(2)
		}
		s.sizes = append(s.sizes, size)
	}
	if s.count < 1 || s.repeat < 1 || s.producers < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := s.run
	if *role != "" {
		work = func(ctx context.Context) error { return carry(ctx, *role, *queue) }
	}
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

// run measures everything and prints the table.
func (s settings) run(ctx context.Context) error {
	w, err := newWorld(ctx, s.producers)
	if err != nil {
		return err
	}
	defer w.close()
	fmt.Printf("%s; Redis %s; River %s; %d producers; 256 bytes a body; medians of %d [min, max]\n",
		w.postgresVersion, w.redisVersion, version("github.com/riverqueue/river"), s.producers, s.repeat)
	return s.measure(ctx, w)
}

func (s settings) measure(ctx context.Context, w *world) error {
	for _, size := range s.sizes {
		results := map[string][]result{}
		count := s.countOf(size)
		for range s.repeat {
			for _, v := range variants {
				if !strings.Contains(v.name, s.variants) {
					continue
				}
				r, err := w.measure(ctx, v, load{count: count, size: size, producers: s.producers})
				if err != nil {
					return fmt.Errorf("%s, %d a transaction: %w", v.name, size, err)
				}
				results[v.name] = append(results[v.name], r)
			}
		}
		show(size, count, results)
	}
	return nil
}

// countOf keeps what is dominated by commits short.
func (s settings) countOf(size int) int {
	count := s.count
	switch {
	case size < 5:
		count /= 10
	case size < 50:
		count /= 2
	}
	return max(count/size, 1) * size
}

// show prints the medians of one size.
func show(size, count int, results map[string][]result) {
	base := results[variants[0].name]
	fmt.Printf("\n%d messages in transactions of %d%s\n", count, size, strings.Repeat(" ", max(0, 4-len(strconv.Itoa(size)))))
	fmt.Printf("%-28s %9s %22s %7s | CPU, us a message: %9s %9s %9s %9s\n",
		"", "msgs/s", "", "ratio", "producer", "postgres", "bridge", "redis")
	for _, v := range variants {
		list := results[v.name]
		if len(list) == 0 {
			continue
		}
		line := func(name string, of func(result) float64) {
			fmt.Printf("%-28s %9.0f %22s %7.2f |                   %9.1f %9.1f %9.1f %9.1f\n", name, median(list, of), span(list, of), ratio(list, base, of),
				median(list, cpuOf(count, 0)), median(list, cpuOf(count, 1)), median(list, cpuOf(count, 2)), median(list, cpuOf(count, 3)))
		}
		if list[0].committed > 0 {
			line(v.name+", committed", func(r result) float64 { return r.committed })
			line(v.name+", in Redis", func(r result) float64 { return r.rate })
			continue
		}
		line(v.name, func(r result) float64 { return r.rate })
	}
}

func cpuOf(count, part int) func(result) float64 {
	return func(r result) float64 { return float64(r.cpu[part].Microseconds()) / float64(count) }
}

func values(list []result, of func(result) float64) []float64 {
	out := make([]float64, len(list))
	for i, r := range list {
		out[i] = of(r)
	}
	slices.Sort(out)
	return out
}

func median(list []result, of func(result) float64) float64 { return values(list, of)[len(list)/2] }

// ratio is the median of those to the first variant in the same repetition: what
// else the machine did then, both have felt.
func ratio(list, base []result, of func(result) float64) float64 {
	ratios := make([]result, min(len(list), len(base)))
	for i := range ratios {
		ratios[i].rate = of(list[i]) / base[i].rate
	}
	if len(ratios) == 0 {
		return 0
	}
	return median(ratios, func(r result) float64 { return r.rate })
}

func span(list []result, of func(result) float64) string {
	sorted := values(list, of)
	return fmt.Sprintf("[%.0f, %.0f]", sorted[0], sorted[len(sorted)-1])
}

// version is a module's, as it was built in.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}

var errTimeout = errors.New("not everything was done in time")
