package sqs_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
)

// TestLink sends to an endpoint that demands a certificate, as one of a company's own may.
func TestLink(t *testing.T) {
	t.Parallel()
	l := &linktest.Link{Certs: testenv.NewCerts(t)}
	url := l.ServeHTTPS(t, func(string) http.Handler { return &answers{} })
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		sink := openSink(t, url, func(c *sqs.Config) { c.TLS = login.TLS })
		return func(ctx context.Context) error {
			return linktest.Publish(ctx, t, sink, sinktest.NewMessage(t, "orders", ""))
		}
	}
	l.Run(t)
}
