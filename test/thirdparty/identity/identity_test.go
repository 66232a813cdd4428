// Package identity_test has callers of a bridge that are known by tokens of a certified OpenID provider, and by
// client certificates. It is here to keep the provider out of the root's go.mod.
package identity_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/api/access/accesstest"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/preflight"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	patience = 2 * time.Minute
	tick     = 50 * time.Millisecond
)

const staticToken = "static-token-1"

// world is a bridge with the queue "orders" that listens with TLS.
type world struct {
	t       *testing.T
	certs   testenv.Certs
	tokens  string // the file
	prefix  string
	address string
	reloads chan os.Signal
	log     *testenv.Log
	inForce *config.Config // at the start

	mu   sync.Mutex
	next *config.Config
}

// parse makes a configuration with that section admin.auth.
func (w *world) parse(auth string) *config.Config {
	w.t.Helper()
	cfg, err := config.Parse(fmt.Appendf(nil, `
prefix: %s
instance: bridge-1
redis: {url: %q}
queues: {orders: {shards: 1, sink: events}, other: {shards: 1, sink: events}}
sinks: {events: {type: nats, url: %q}}
admin:
  listen: 127.0.0.1:0
  tls: {cert_file: %s, key_file: %s, client_ca_file: %s, client_certs: optional}
  auth:
    tokens_file: %s
%s
drain_timeout: 5s
`, w.prefix, testenv.Redis(w.t), testenv.NATS(w.t), w.certs.ServerCert, w.certs.ServerKey, w.certs.CAFile, w.tokens, auth), nil)
	require.NoError(w.t, err)
	return cfg
}

func newWorld(t *testing.T, auth func(w *world) string) *world {
	t.Helper()
	w := &world{t: t, certs: testenv.NewCerts(t), prefix: testenv.Name(t, "p"), reloads: make(chan os.Signal), log: &testenv.Log{}}
	w.tokens = filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(w.tokens, []byte(staticToken+" operator name=static\n"), 0o600))
	cfg := w.parse(auth(w))
	w.inForce = cfg
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.address = "https://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(w.log, t.Output()), nil))
	load := func(*config.Config) (*config.Config, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.next, nil
	}
	go func() { ended <- app.Run(ctx, cfg, logger, app.AdminListener(listener), app.Reload(w.reloads, load)) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	w.eventually(http.StatusOK, "GET", "/queues/orders", staticToken)
	return w
}

// reload puts that section admin.auth in force.
func (w *world) reload(auth string) {
	w.t.Helper()
	next := w.parse(auth)
	w.mu.Lock()
	w.next = next
	w.mu.Unlock()
	before := strings.Count(w.log.String(), "event=reload")
	w.reloads <- syscall.SIGHUP
	require.Eventually(w.t, func() bool { return strings.Count(w.log.String(), "event=reload") > before }, patience, tick)
}

// call makes a call with a token, if it is not empty, and a certificate of the client, if it is to have one.
func (w *world) call(method, path, token string, hasCertificate bool) (int, string, error) {
	files := tlsclient.Files{CAFile: w.certs.CAFile}
	if hasCertificate {
		files.CertFile, files.KeyFile = w.certs.ClientCert, w.certs.ClientKey
	}
	settings, err := files.Config()
	if err != nil {
		return 0, "", err
	}
	return w.callWith(settings, method, path, token)
}

func (w *world) callWith(settings *tls.Config, method, path, token string) (int, string, error) {
	var body io.Reader = http.NoBody
	if method == http.MethodPost {
		body = strings.NewReader(`{"topic": "t", "in": "1h"}`)
	}
	if !strings.HasPrefix(path, "/metrics") {
		path = "/api/v1" + path
	}
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.address+path, body)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// is requires a status, and returns the answer.
func (w *world) is(status int, method, path, token string) string {
	w.t.Helper()
	got, content, err := w.call(method, path, token, false)
	require.NoError(w.t, err)
	require.Equal(w.t, status, got, "%s %s: %s", method, path, content)
	return content
}

// eventually waits for a status.
func (w *world) eventually(status int, method, path, token string) {
	w.t.Helper()
	last := ""
	require.Eventually(w.t, func() bool {
		got, content, err := w.call(method, path, token, false)
		last = fmt.Sprint(got, content, err)
		return err == nil && got == status
	}, patience, tick, "%s", &last)
}

func (w *world) token(i *issuer, client string) string {
	w.t.Helper()
	token, err := i.token(w.t.Context(), client)
	require.NoError(w.t, err)
	return token
}

func section(name string, i *issuer, callers ...string) string {
	return fmt.Sprintf("      %s: {url: %q, audiences: [%s], ca_file: %s, callers: ['%s']}\n", name, i.URL, audience, i.ca, strings.Join(callers, "', '"))
}

const orders = "/queues/orders/messages"

// TestIssuers: two providers whose keys have one id; the bridge starts while one is away; its key is replaced; it goes
// away and comes back.
func TestIssuers(t *testing.T) {
	t.Parallel()
	corp := newIssuer(t, "k1", map[string][]string{"ann": {"sre"}, "shop": {"pay", "x"}, "eve": nil})
	partners := newIssuer(t, "k1", map[string][]string{"ann": {"sre"}})
	corp.isAway.Store(true)
	w := newWorld(t, func(*world) string {
		return "    issuers:\n" + section("corp", corp, "groups=sre operator", "groups=pay producer queues=orders") + section("partners", partners, "sub=* viewer")
	})
	ann, shop, other := w.token(corp, "ann"), w.token(corp, "shop"), w.token(partners, "ann")
	assert.Contains(t, w.is(http.StatusServiceUnavailable, "GET", "/queues", ann), `"unavailable"`)
	w.is(http.StatusOK, "GET", "/queues", staticToken)
	w.eventually(http.StatusOK, "GET", "/queues", other)
	assert.Equal(t, []string{"error issuer_unread"}, w.check("issuer corp"))

	corp.isAway.Store(false)
	w.eventually(http.StatusOK, "GET", "/queues", ann)
	assert.Empty(t, w.check("issuer corp"))
	w.is(http.StatusCreated, "POST", orders, shop)
	w.is(http.StatusForbidden, "POST", "/queues/other/messages", shop)
	w.is(http.StatusForbidden, "GET", "/queues", shop)
	w.is(http.StatusForbidden, "POST", orders, other)
	assert.Contains(t, w.is(http.StatusForbidden, "POST", orders, w.token(corp, "eve")), "the attribute groups is missing")
	w.is(http.StatusCreated, "POST", orders, ann)
	assert.Contains(t, w.is(http.StatusOK, "GET", "/audit?queue=orders", ann), `"corp/ann"`)

	corp.rotate(t, "k2")
	w.eventually(http.StatusCreated, "POST", orders, w.token(corp, "shop"))
	w.is(http.StatusUnauthorized, "POST", orders, shop)
	w.is(http.StatusOK, "GET", "/queues", other)

	corp.isAway.Store(true)
	shop = w.token(corp, "shop")
	corp.rotate(t, "k3")
	unknown := w.token(corp, "shop") // It makes the bridge ask.
	require.Eventually(t, func() bool {
		_, _, err := w.call("POST", orders, unknown, false)
		return err == nil && strings.Contains(w.metrics(), `delaybridge_issuer_up{issuer="corp"} 0`)
	}, patience, tick)
	w.is(http.StatusUnauthorized, "POST", orders, unknown)
	w.is(http.StatusCreated, "POST", orders, shop)
	assert.Contains(t, w.metrics(), `delaybridge_issuer_up{issuer="partners"} 1`)
	corp.isAway.Store(false)
	w.eventually(http.StatusCreated, "POST", orders, unknown)
	require.Eventually(t, func() bool { return strings.Contains(w.metrics(), `delaybridge_issuer_up{issuer="corp"} 1`) }, patience, tick)
	assert.NotContains(t, w.log.String(), "eyJ")
}

func (w *world) metrics() string {
	w.t.Helper()
	return w.is(http.StatusOK, "GET", "/metrics", "")
}

// check are the findings of bridge check for a subject.
func (w *world) check(subject string) (codes []string) {
	w.t.Helper()
	flight, err := preflight.New(w.inForce, nil)
	require.NoError(w.t, err)
	defer flight.Close()
	steps, err := flight.Steps()
	require.NoError(w.t, err)
	for _, step := range steps {
		if step.Subject == subject {
			for _, f := range step.Run(w.t.Context()) {
				codes = append(codes, f.Level.String()+" "+f.Code)
			}
		}
	}
	return codes
}

// TestReload: settings change under load, at once and for all; each call is served by the old ones or the new ones.
func TestReload(t *testing.T) {
	t.Parallel()
	corp, partners := newIssuer(t, "k1", map[string][]string{"shop": nil, "ann": nil}), newIssuer(t, "k1", map[string][]string{"bob": nil})
	both := "    issuers:\n" + section("corp", corp, "sub=shop producer", "sub=ann operator") + section("partners", partners, "sub=* viewer")
	less := "    issuers:\n" + section("corp", corp, "sub=shop viewer", "sub=ann operator")
	w := newWorld(t, func(*world) string { return both })
	shop, ann, bob := w.token(corp, "shop"), w.token(corp, "ann"), w.token(partners, "bob")
	w.eventually(http.StatusCreated, "POST", orders, shop)
	w.eventually(http.StatusOK, "GET", "/queues", bob)

	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	statuses := make([]map[int]int, 4)
	for i := range statuses {
		statuses[i] = map[int]int{}
		load.Go(func() {
			for ctx.Err() == nil {
				token, method, path := shop, "POST", orders
				if i%2 == 1 {
					token, method, path = ann, "GET", "/queues"
				}
				status, _, err := w.call(method, path, token, false)
				if assert.NoError(t, err) {
					statuses[i][status]++
				}
			}
		})
	}
	for range 5 {
		w.reload(less)
		w.is(http.StatusForbidden, "POST", orders, shop)
		w.is(http.StatusUnauthorized, "GET", "/queues", bob)
		w.reload(both)
		w.is(http.StatusCreated, "POST", orders, shop)
		w.eventually(http.StatusOK, "GET", "/queues", bob)
	}
	cancel()
	load.Wait()
	for i, seen := range statuses {
		delete(seen, http.StatusTooManyRequests)
		if i%2 == 1 {
			delete(seen, http.StatusOK)
		} else {
			delete(seen, http.StatusCreated)
			delete(seen, http.StatusForbidden)
		}
		assert.Empty(t, seen, "ann is let in all the time, and shop is never unknown")
	}
	assert.NotContains(t, w.log.String(), "not reloaded")
}

// TestCertificate: a client certificate makes a caller, and a token comes before it.
func TestCertificate(t *testing.T) {
	t.Parallel()
	corp := newIssuer(t, "k1", map[string][]string{"ann": nil})
	names := "'cn=* producer queues=orders name=gateway'"
	w := newWorld(t, func(*world) string {
		return "    certificates: [" + names + "]\n    issuers:\n" + section("corp", corp, "sub=ann viewer")
	})
	ann := w.token(corp, "ann")
	w.eventually(http.StatusOK, "GET", "/queues", ann)
	for _, c := range []struct {
		method, token  string
		hasCertificate bool
		want           int
	}{
		{"POST", "", true, http.StatusCreated},
		{"POST", "", false, http.StatusUnauthorized},
		{"POST", ann, true, http.StatusForbidden},
		{"POST", "wrong-token", true, http.StatusUnauthorized},
		{"POST", staticToken, true, http.StatusCreated},
	} {
		status, content, err := w.call(c.method, orders, c.token, c.hasCertificate)
		require.NoError(t, err)
		assert.Equal(t, c.want, status, "%+v: %s", c, content)
	}
	stranger := testenv.NewCerts(t)
	settings, err := tlsclient.Files{CAFile: w.certs.CAFile, CertFile: stranger.ClientCert, KeyFile: stranger.ClientKey}.Config()
	require.NoError(t, err)
	_, _, err = w.callWith(settings, "POST", orders, staticToken)
	require.Error(t, err, "a certificate of another authority is worse than none")
}

// kubernetes is the configuration of docs/identity.md.
var kubernetes = regexp.MustCompile("(?s)## Kubernetes.*?```yaml\nadmin:\n  auth:\n(.*?)```")

// TestKubernetes: the configuration of the handbook, against a server that guards its keys as the API server does.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/identity.md")
	require.NoError(t, err)
	found := kubernetes.FindSubmatch(page)
	require.NotNil(t, found)
	const url = "https://kubernetes.default.svc.cluster.local"
	signer := accesstest.NewSigner(t, url, "k1")
	keys := filepath.Join(t.TempDir(), "keys")
	signer.Publish(t, keys)
	own := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(own, []byte("the-pods-own\n"), 0o600))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openid/v1/jwks" || r.Header.Get("Authorization") != "Bearer the-pods-own" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.ServeFile(w, r, keys)
	}))
	t.Cleanup(server.Close)
	ca := writeCA(t, server)
	w := newWorld(t, func(*world) string {
		return strings.NewReplacer(
			"https://kubernetes.default.svc/openid", server.URL+"/openid",
			"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", ca, "/var/run/secrets/kubernetes.io/serviceaccount/token", own,
		).Replace(string(found[1]))
	})
	token := func(namespace, account string) string {
		return signer.Token(t, "system:serviceaccount:"+namespace+":"+account, map[string]any{
			"aud": []string{audience}, "jti": "5c7e4f", "kubernetes.io": map[string]any{
				"namespace": namespace, "node": map[string]any{"name": "node-1", "uid": "1"}, "pod": map[string]any{"name": account + "-0", "uid": "2"},
				"serviceaccount": map[string]any{"name": account, "uid": "3"},
			},
		})
	}
	w.eventually(http.StatusCreated, "POST", orders, token("shop", "checkout"))
	w.is(http.StatusForbidden, "POST", "/queues/other/messages", token("shop", "checkout"))
	w.is(http.StatusForbidden, "POST", orders, token("shop", "other"))
	w.is(http.StatusOK, "GET", "/queues", token("monitoring", "grafana"))
	w.is(http.StatusForbidden, "POST", orders, token("monitoring", "grafana"))
	w.is(http.StatusUnauthorized, "POST", orders, signer.Token(t, "system:serviceaccount:shop:checkout", map[string]any{"aud": []string{url}}))
}
