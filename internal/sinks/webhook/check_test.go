package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/webhook"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// One thing is wrong at a time. No request is made.
func TestCheck(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	certs := testenv.NewCerts(t)
	secured, unsecured := linktest.NewHTTPS(t, certs, false, count), httptest.NewServer(count)
	t.Cleanup(unsecured.Close)
	trusting, plan := &tlsclient.Files{CAFile: certs.CAFile}, sinks.Plan{Topics: []string{"orders"}}
	look := func(plan sinks.Plan, url string, tls *tlsclient.Files) []string {
		t.Helper()
		return sinktest.Told(open(t, webhook.Config{Endpoints: map[string]webhook.Endpoint{"orders": plain(t, url)}, TLS: tls}).Check(t.Context(), plan))
	}
	require.Empty(t, look(plan, secured.URL, trusting))
	require.Equal(t, []string{"E webhook_endpoint"}, look(sinks.Plan{Topics: []string{"bills", "orders"}}, secured.URL, trusting))
	require.Equal(t, []string{"E webhook_tls"}, look(plan, secured.URL, nil))
	require.Equal(t, []string{"W webhook_plain"}, look(plan, unsecured.URL, nil))
	require.Equal(t, []string{"E webhook_unreachable"}, look(plan, "https://127.0.0.1:"+testenv.Port(t), trusting))
	require.Equal(t, []string{"E webhook_unreachable"}, look(plan, "https://nobody.invalid/", trusting))
	require.Zero(t, asked.Load())
}

// An operator is told what a firewall has to let through, for each endpoint, and no secret.
func TestGrants(t *testing.T) {
	t.Parallel()
	lines := webhook.Config{Endpoints: map[string]webhook.Endpoint{
		"orders": {URL: "https://shop.example.com/hooks", Secrets: "/run/secrets/orders"},
		"bills":  {URL: "https://[2001:db8::1]:8443/", Secrets: "/run/secrets/bills"},
	}}.Grants(kind.Use{})
	require.Equal(t, []string{
		"# endpoint bills: let the bridge reach [2001:db8::1]:8443, and have it verify with the secrets of /run/secrets/bills",
		"# endpoint orders: let the bridge reach shop.example.com:443, and have it verify with the secrets of /run/secrets/orders",
	}, lines)
}

// A receiver may ask for our certificate. Without it nothing is posted, and the reason is
// told, though under TLS 1.3 the handshake has succeeded on our side.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	var asked atomic.Int64
	server := linktest.NewHTTPS(t, certs, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	with := func(tls tlsclient.Files) *webhook.Sink {
		return open(t, webhook.Config{Endpoints: map[string]webhook.Endpoint{"orders": plain(t, server.URL)}, TLS: &tls})
	}
	without := with(tlsclient.Files{CAFile: certs.CAFile})
	require.Eventually(t, func() bool { // The server may reset the connection before we have read why.
		outcome := sinktest.Publish(t, without, sinktest.NewMessage(t, "orders", ""))[0]
		return outcome.Class == sinks.Unavailable && outcome.Reason == sinks.ReasonAuth
	}, time.Minute, 10*time.Millisecond)
	stranger := with(tlsclient.Files{CertFile: certs.ClientCert, KeyFile: certs.ClientKey})
	sinktest.RequireOutcome(t, sinktest.Publish(t, stranger, sinktest.NewMessage(t, "orders", ""))[0], sinks.Unavailable, sinks.ReasonAuth)
	require.Zero(t, asked.Load())
	own := with(tlsclient.Files{CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey})
	sinktest.RequireOutcome(t, sinktest.Publish(t, own, sinktest.NewMessage(t, "orders", ""))[0], sinks.Acknowledged, "")
}
