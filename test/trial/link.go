package trial

import (
	"context"
	"strings"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
)

// overLink is a broker as the bridge reaches it: through the proxy.
type overLink struct {
	Broker

	link *faultproxy.Proxy
}

// SinkConfig is the broker's, with the proxy's address in the place of its own.
func (b overLink) SinkConfig() string {
	return strings.ReplaceAll(b.Broker.SinkConfig(), b.Server().Addr(), b.link.Addr())
}

// CountPublishes counts what reaches the broker for a topic from now on, until
// the returned function is called: also the copies that NATS recognises and
// drops, which no consumer of a stream sees. The other brokers drop nothing, so
// there it is what the ledger got.
func (w *World) CountPublishes() (count func() int, end func(), err error) {
	b, ok := w.Broker.(natsBroker)
	if !ok {
		return w.Ledger.Arrived, func() {}, nil
	}
	nc, _, err := b.connect()
	if err != nil {
		return nil, nil, err
	}
	var published atomic.Int64
	all, err := nc.Subscribe(w.Topic, func(*natsgo.Msg) { published.Add(1) })
	if err == nil {
		err = all.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = nc.Flush() // The server has the subscription.
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return func() int { return int(published.Load()) }, nc.Close, nil
}

// startLink makes the proxy, which a broker that advertises its address has to know.
func (w *World) startLink(ctx context.Context, o Options) (advertised string, err error) {
	if !o.Link {
		return "", nil
	}
	if w.Link, err = faultproxy.New(ctx, ""); err != nil {
		return "", err
	}
	return w.Link.Addr(), nil
}
