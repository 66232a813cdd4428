package pubsub_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// TestLink sends to an endpoint that demands a certificate, as one of a company's own may.
func TestLink(t *testing.T) {
	t.Parallel()
	l := &linktest.Link{Certs: testenv.NewCerts(t)}
	tokens, _ := newTokens(t, rightToken, nil)
	account := filepath.Join(t.TempDir(), "account.json")
	writeAccount(t, account, tokens)
	url := l.ServeHTTPS(t, func(string) http.Handler { return &answers{} })
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		sink := openSink(t, url, func(c *pubsub.Config) { c.TLS, c.CredentialsFile = login.TLS, account })
		return func(ctx context.Context) error {
			return linktest.Publish(ctx, t, sink, sinktest.NewMessage(t, "orders", ""))
		}
	}
	l.Run(t)
}
