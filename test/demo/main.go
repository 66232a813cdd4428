// Command demo is the producer and the consumer of docker-compose.yml. `demo produce` places an
// order a second and schedules its timeout, in turn by Redis and in a transaction of the
// database; most orders are paid in time, which cancels that. `demo consume` prints the
// timeouts that arrive.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const (
	queue = "orders"
	topic = "order.timeout"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 1 {
		switch args[0] {
		case "produce":
			return produce(ctx, os.Getenv("REDIS_URL"), os.Getenv("DATABASE_URL"))
		case "consume":
			return consume(ctx, os.Getenv("NATS_URL"), printArrival)
		}
	}
	return fmt.Errorf("usage: demo produce|consume")
}
