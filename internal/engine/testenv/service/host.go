package service

import (
	"context"
	"net"
	"strconv"
)

// Host is where a server runs.
type Host struct {
	// IP is the address of its listeners.
	IP string
	// Do starts a process there.
	Do func(start func() error) error
}

// loopback is where servers run that have no other place.
var loopback = Host{IP: "127.0.0.1", Do: func(start func() error) error { return start() }}

type placesKey struct{}

// Place has each server that is made with the context run where host says, which is asked
// with the kind of server: "redis", "sentinel", "cluster", "nats", "kafka", "rabbitmq",
// "pubsub", "sqs", "postgres" or "mariadb".
func Place(ctx context.Context, host func(kind string) (Host, error)) context.Context {
	return context.WithValue(ctx, placesKey{}, host)
}

// HostOf is where a server or another process of that kind runs.
func HostOf(ctx context.Context, kind string) (Host, error) {
	if host, ok := ctx.Value(placesKey{}).(func(string) (Host, error)); ok {
		return host(kind)
	}
	return loopback, nil
}

// At is the address of a port of the host.
func (h Host) At(port int) string { return net.JoinHostPort(h.IP, strconv.Itoa(port)) }
