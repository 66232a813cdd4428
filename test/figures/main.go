// Command figures runs the bridge between a real Redis and real brokers and
// prints what it promises, measured. Each figure is a subcommand:
//
//	flow    20,000 messages due over 20 s, some cancelled, some rescheduled
//	race    20,000 cancels and 20,000 reschedules within 50 ms of the due time
//	kill    as flow, with kill -9 of the bridge five times
//	outage  as flow over 60 s, the broker stopped for 30 s, Redis restarted
//	backlog memory with 1,000,000 due messages while the broker is down
//	memory  Redis' memory for 1,000,000 waiting messages
//	idle    Redis commands per second of an idle bridge
//	drain   200,000 due messages, beside the client library alone
//
// It starts everything itself and exits with 1 where a promise was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/delaybridge/delaybridge/test/flow"
)

// run is one figure's setting.
type run struct {
	binary, broker string
	count, shards  int
}

var figures = map[string]func(context.Context, run) error{
	"flow": flowFigure, "race": raceFigure, "kill": killFigure, "outage": outageFigure,
	"backlog": backlogFigure, "memory": memoryFigure, "idle": idleFigure, "drain": drainFigure,
}

func main() {
	brokers := flag.String("brokers", "nats,rabbitmq,kafka", "brokers to measure, a comma list")
	count := flag.Int("count", 0, "messages, 0 for the figure's own number")
	shards := flag.Int("shards", 8, "shards of the queue")
	flag.Parse()
	figure := figures[flag.Arg(0)]
	if figure == nil || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: figures [-brokers LIST] [-count N] [-shards N] flow|race|kill|outage|backlog|memory|idle|drain")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := all(ctx, figure, strings.Split(*brokers, ","), *count, *shards); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func all(ctx context.Context, figure func(context.Context, run) error, brokers []string, count, shards int) error {
	dir, err := os.MkdirTemp("", "delaybridge-figures-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := flow.Build(ctx, dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, broker := range brokers {
		if err := figure(ctx, run{binary: binary, broker: broker, count: count, shards: shards}); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", broker, err))
		}
	}
	return errors.Join(problems...)
}
