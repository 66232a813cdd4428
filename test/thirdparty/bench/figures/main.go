// Command figures runs the bridge between a real Redis and real brokers, and prints what it
// takes: time, memory, processor. Each figure is a subcommand; without one it lists them. It
// starts everything itself, and exits with 1 where a promise was broken meanwhile. What is
// promised while things go wrong is the matter of test/trial.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// run is one figure's setting.
type run struct {
	binary, broker string
	count, shards  int
	rate, repeat   int
	window, start  time.Duration
	databases      string
	fault          string
	against        string
	seed           uint64
}

// figure is a subcommand.
type figure struct {
	measure func(context.Context, run) error
	about   string
	// brokers, shards and rate are its own, where the flags do not say.
	brokers      string
	shards, rate int
}

const allBrokers = "nats,rabbitmq,kafka"

var figures = map[string]figure{
	"backlog":    {backlogFigure, "memory with 1,000,000 due messages while the broker is down", allBrokers, 8, 0},
	"memory":     {memoryFigure, "Redis' memory for 1,000,000 waiting messages", allBrokers, 8, 0},
	"scale":      {scaleFigure, "the drain of 400,000 messages by shards and by instances", "nats", 8, 0},
	"idle":       {idleFigure, "what idle bridges cost: Redis commands, CPU, goroutines, connections", "nats", 8, 0},
	"routes":     {routesFigure, "healthy messages beside a topic that fails, and once it is parked (-fault)", allBrokers, 8, 500},
	"links":      {linksFigure, "a backlog over links of 100, 400 and 2,000 kB/s, beside the sink alone, and with a broker that is paused", allBrokers, 8, 0},
	"horizon":    {horizonFigure, "an outbox of a year, with foreign rows and an open snapshot, beside an empty one (-databases)", "nats", 8, 500},
	"wipe":       {wipeFigure, "FLUSHALL while 1,000,000 messages of an outbox wait in Redis (-databases)", "nats", 16, 500},
	"durability": {durabilityFigure, "lateness, drain and relay with each durability of a queue", "nats", 8, 1000},
	"pairs":      {pairsFigure, "the drain of 200,000 messages by turns with another commit's bridge (-against)", allBrokers, 8, 0},
	"load":       {loadFigure, "what the HTTP API takes, and what each SDK reaches: single calls and batches", "nats", 8, 0},
	"operate":    {operateFigure, "lists, pages and a job while 5,000,000 messages wait", "nats", 8, 0},
	"wave":       {waveFigure, "100,000 messages due in a minute, to consumers that are scaled by their backlog, and to others also by the queue's demand (-start)", "nats", 8, 0},
	"price":      {priceFigure, "what tags, a history and a budget cost a message", "nats", 8, 0},
	"sizes":      {sizesFigure, "the constants of bridge size: memory, disk, reload, fork, and rows of an outbox (-databases)", "nats", 8, 0},
}

func usage() {
	out := flag.CommandLine.Output()
	_, _ = fmt.Fprintln(out, "usage: figures [FLAG...] FIGURE")
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		_, _ = fmt.Fprintf(out, "  %-10s  %s\n", name, figures[name].about)
	}
	flag.PrintDefaults()
}

func main() {
	var r run
	brokers := flag.String("brokers", "", "brokers to measure, a comma list of nats, rabbitmq, kafka; empty for the figure's own")
	flag.IntVar(&r.count, "count", 0, "messages, 0 for the figure's own number")
	flag.IntVar(&r.shards, "shards", 0, "shards of the queue, 0 for the figure's own number")
	flag.IntVar(&r.rate, "rate", 0, "messages a second of a steady load, 0 for the figure's own rate")
	flag.IntVar(&r.repeat, "repeat", 3, "repetitions, interleaved")
	flag.DurationVar(&r.window, "window", 20*time.Second, "time for which an idle bridge is watched, or a load lasts")
	flag.DurationVar(&r.start, "start", 20*time.Second, "time that a consumer takes to start")
	flag.StringVar(&r.databases, "databases", "postgres,mariadb", "databases of the outbox, a comma list")
	flag.StringVar(&r.fault, "fault", string(trial.Refusing), "how a topic fails: missing, refusing or hanging")
	flag.StringVar(&r.against, "against", "HEAD^", "the commit that this tree is compared with")
	flag.Uint64Var(&r.seed, "seed", rand.Uint64N(1_000_000), "makes what producers do repeatable") //nolint:gosec // any seed will do
	flag.Usage = usage
	flag.Parse()
	f, found := figures[flag.Arg(0)]
	if !found || flag.NArg() != 1 || r.rate < 0 || r.repeat < 1 || r.window <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	r.shards, r.rate = cmp.Or(r.shards, f.shards), cmp.Or(r.rate, f.rate)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := all(ctx, f, strings.Split(cmp.Or(*brokers, f.brokers), ","), r); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func all(ctx context.Context, f figure, brokers []string, r run) error {
	dir, err := os.MkdirTemp("", "delaybridge-figures-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if r.binary, err = trial.Build(ctx, dir); err != nil {
		return err
	}
	var problems []error
	for _, r.broker = range brokers {
		if err := f.measure(ctx, r); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.broker, err))
		}
	}
	return errors.Join(problems...)
}

// world starts one; Options say what it has besides what the flags say.
func (r run) world(ctx context.Context, o trial.Options) (*trial.World, error) {
	o.Binary, o.Broker, o.Shards = r.binary, r.broker, cmp.Or(o.Shards, r.shards)
	if o.Redis == nil {
		o.Redis = []string{"--appendonly", "yes"}
	}
	return trial.NewWorld(ctx, o)
}

func rate(count int, d time.Duration) float64 { return float64(count) / d.Seconds() }

// median is that of one value or more.
func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
