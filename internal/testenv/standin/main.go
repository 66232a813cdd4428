// Command standin runs an in-process imitation of a server that the machine
// lacks, at the address given: "standin redis 127.0.0.1:1234". It ends with
// SIGTERM. Package service builds and starts it.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: standin redis|kafka HOST:PORT")
	}
	stop, err := start(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatalf("start stand-in: %v", err)
	}
	fmt.Println("listening")
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	<-ctx.Done()
	cancel()
	stop()
}

func start(kind, addr string) (stop func(), err error) {
	switch kind {
	case "redis":
		server := miniredis.NewMiniRedis()
		return server.Close, server.StartAddr(addr)
	case "kafka":
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("split address: %w", err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, fmt.Errorf("read port: %w", err)
		}
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(number))
		if err != nil {
			return nil, err
		}
		return cluster.Close, nil
	default:
		return nil, fmt.Errorf("no stand-in for %q", kind)
	}
}
