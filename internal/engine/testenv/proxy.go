package testenv

import (
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
)

// Proxy is a [faultproxy.Proxy] of one test, whose end closes it.
type Proxy = faultproxy.Proxy

// NewProxy listens on a free port of 127.0.0.1 and forwards to upstream, a
// host and port.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p, err := faultproxy.New(t.Context(), upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
