package pubsub_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// writeAccount writes the file of a service account whose tokens come from there.
func writeAccount(t testing.TB, path, tokens string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "bridge@p.iam.gserviceaccount.com", "private_key_id": "1", "token_uri": tokens,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// newTokens gives a token of an hour, unless refuse, if there is one, says otherwise.
func newTokens(t testing.TB, token string, refuse func() bool) (url string, given *atomic.Int64) {
	t.Helper()
	given = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refuse != nil && refuse() {
			http.Error(w, `{"error":"invalid_grant","error_description":"hidden"}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		given.Add(1)
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
	}))
	t.Cleanup(server.Close)
	return server.URL, given
}

// Without a token nothing is sent. One is asked for once, and again, with the file as it is then,
// when Pub/Sub refuses it.
func TestLogin(t *testing.T) {
	t.Parallel()
	var isRefused, isRevoked atomic.Bool
	isRefused.Store(true)
	tokens, given := newTokens(t, rightToken, isRefused.Load)
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		return isRevoked.Load() && refuse(401, "UNAUTHENTICATED")(w, text)
	}}
	certs := testenv.NewCerts(t)
	server, file := linktest.NewHTTPS(t, certs, false, a), filepath.Join(t.TempDir(), "account.json")
	sink := openSink(t, server.URL, func(c *pubsub.Config) {
		c.TLS, c.CredentialsFile = &tlsclient.Files{CAFile: certs.CAFile}, file
	})
	publish := func() sinks.Outcome { return sinktest.Publish(t, sink, batchOf(t, "orders", "", "body")...)[0] }
	requireLogin := func(detail string) {
		t.Helper()
		outcome := publish()
		sinktest.RequireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonAuth)
		require.True(t, outcome.Whole)
		require.ErrorContains(t, outcome.Err, detail)
		require.NotContains(t, outcome.Err.Error(), "hidden")
	}
	requireLogin("account.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"type": "odd", "private_key": "hidden"}`), 0o600))
	requireLogin("account.json")
	writeAccount(t, file, tokens)
	requireLogin("the token service answered 400")
	require.Empty(t, a.paths, "nothing was sent")

	isRefused.Store(false)
	for range 3 {
		sinktest.RequireOutcome(t, publish(), sinks.Acknowledged, "")
	}
	require.Equal(t, int64(1), given.Load())
	require.Equal(t, []string{"Bearer token-1", "Bearer token-1", "Bearer token-1"}, a.logins)

	others, _ := newTokens(t, "token-2", nil)
	writeAccount(t, file, others+"/other")
	isRevoked.Store(true)
	requireLogin("what Google says")
	isRevoked.Store(false)
	sinktest.RequireOutcome(t, publish(), sinks.Acknowledged, "")
	require.Equal(t, int64(1), given.Load())
	require.Equal(t, "Bearer token-2", a.logins[len(a.logins)-1], "the file names another service")
}

// A service of tokens that does not answer holds up a call for the publish timeout, and who waits behind
// that call can give up before.
func TestATokenServiceThatHangs(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Only then is it seen that the caller has gone.
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	file, a, certs := filepath.Join(t.TempDir(), "account.json"), &answers{}, testenv.NewCerts(t)
	writeAccount(t, file, hangs.URL)
	sink := openSink(t, linktest.NewHTTPS(t, certs, false, a).URL, func(c *pubsub.Config) {
		c.TLS, c.CredentialsFile, c.PublishTimeout = &tlsclient.Files{CAFile: certs.CAFile}, file, 5*time.Second
	})
	first := make(chan []sinks.Outcome, 1)
	go func() { first <- sinktest.Publish(t, sink, batchOf(t, "orders", "", "body")...) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	sinktest.RequireOutcome(t, sinks.Publish(ctx, sink, batchOf(t, "bills", "", "body"))[0], sinks.Unavailable, sinks.ReasonTimeout)
	require.Empty(t, first, "it has waited for the other one")
	sinktest.RequireOutcome(t, (<-first)[0], sinks.Unavailable, sinks.ReasonTimeout)
	require.Empty(t, a.paths)
}

// Over plain text no login is sent, whatever the environment has.
func TestNoLoginInPlainText(t *testing.T) {
	tokens, given := newTokens(t, rightToken, nil)
	file := filepath.Join(t.TempDir(), "account.json")
	writeAccount(t, file, tokens)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	a := &answers{}
	sinktest.RequireOutcome(t, sinktest.Publish(t, a.open(t, nil), batchOf(t, "orders", "", "body")...)[0], sinks.Acknowledged, "")
	require.Equal(t, []string{""}, a.logins)
	require.Zero(t, given.Load())

	certs := testenv.NewCerts(t)
	sink := openSink(t, linktest.NewHTTPS(t, certs, false, a).URL, func(c *pubsub.Config) { c.TLS = &tlsclient.Files{CAFile: certs.CAFile} })
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, batchOf(t, "orders", "", "body")...)[0], sinks.Acknowledged, "")
	require.Equal(t, []string{"", "Bearer token-1"}, a.logins, "that of the environment")
}

// On Google's machines the metadata server gives the token.
func TestMetadataServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/token" || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, rightToken)
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"GCE_METADATA_HOST": server.Listener.Addr().String(), "GOOGLE_APPLICATION_CREDENTIALS": "", "HOME": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	a, certs := &answers{}, testenv.NewCerts(t)
	sink := openSink(t, linktest.NewHTTPS(t, certs, false, a).URL, func(c *pubsub.Config) { c.TLS = &tlsclient.Files{CAFile: certs.CAFile} })
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, batchOf(t, "orders", "", "body")...)[0], sinks.Acknowledged, "")
	require.Equal(t, []string{"Bearer " + rightToken}, a.logins)
}
