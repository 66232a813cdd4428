package dev

import (
	"fmt"
	"net"
	"strconv"
)

const host = "127.0.0.1"

// pickAddrs chooses the addresses of Redis, NATS and the admin listener. They
// are held until all are chosen, so that no two are the same.
func pickAddrs(o Options) (addrs [3]string, err error) {
	for i, want := range []struct {
		what        string
		port, usual int
	}{
		{"redis", o.RedisPort, usualRedisPort},
		{"nats", o.NATSPort, usualNATSPort},
		{"admin", o.AdminPort, usualAdminPort},
	} {
		listener, err := listen(want.port, want.usual)
		if err != nil {
			return addrs, fmt.Errorf("%s port: %w", want.what, err)
		}
		defer func() { _ = listener.Close() }()
		addrs[i] = listener.Addr().String()
	}
	return addrs, nil
}

// listen takes the port asked for or, where none is, the usual or a free one.
func listen(port, usual int) (net.Listener, error) {
	if port != 0 {
		return listenOn(port)
	}
	if listener, err := listenOn(usual); err == nil {
		return listener, nil
	}
	return listenOn(0)
}

func listenOn(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))) //nolint:noctx // local, it does not block
}
