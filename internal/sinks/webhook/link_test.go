package webhook_test

import (
	"context"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/webhook"
)

// TestLink posts to an endpoint that demands a certificate and the header Authorization.
func TestLink(t *testing.T) {
	t.Parallel()
	l := &linktest.Link{Certs: testenv.NewCerts(t), Password: "correct-horse", Secret: func(password string) string { return "Bearer " + password }}
	url := l.ServeHTTPS(t, func(password string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+password {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
	})
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		endpoint := webhook.Endpoint{URL: url, Secrets: file(t, secret), Authorization: file(t, "none")}
		take := func() {
			t.Helper()
			value, err := login.Secret.Reveal()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(endpoint.Authorization, []byte(value), 0o600))
		}
		take()
		sink := open(t, webhook.Config{Endpoints: map[string]webhook.Endpoint{"orders": endpoint}, TLS: login.TLS})
		return func(ctx context.Context) error {
			take()
			return linktest.Publish(ctx, t, sink, sinktest.NewMessage(t, "orders", ""))
		}
	}
	l.Run(t)
}
