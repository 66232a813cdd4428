package dev

import (
	"fmt"
	"net"
	"strconv"
)

const host = "127.0.0.1"

// ports are held for the servers from the beginning, each until its server
// listens there itself: so no two are the same, and nobody takes one meanwhile.
type ports struct{ redis, nats, admin net.Listener }

func bind(o Options) (p ports, err error) {
	for _, want := range []struct {
		what        string
		port, usual int
		listener    *net.Listener
	}{
		{"redis", o.RedisPort, usualRedisPort, &p.redis},
		{"nats", o.NATSPort, usualNATSPort, &p.nats},
		{"admin", o.AdminPort, usualAdminPort, &p.admin},
	} {
		if *want.listener, err = listen(want.port, want.usual); err != nil {
			p.close()
			return ports{}, fmt.Errorf("%s port: %w", want.what, err)
		}
	}
	return p, nil
}

// close gives up what is still held.
func (p ports) close() {
	for _, listener := range []net.Listener{p.redis, p.nats, p.admin} {
		if listener != nil {
			_ = listener.Close() // It may be closed already.
		}
	}
}

// release gives a port to a server that must listen there itself.
func release(listener net.Listener) (addr string) {
	_ = listener.Close()
	return listener.Addr().String()
}

// listen takes the port asked for or, if none is, the usual or a free one.
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
