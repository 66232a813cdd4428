package identity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	loginPage = "/login"
	// consoleID is what the issuer knows the console as, and user who signs in.
	consoleID = "delaybridge-console"
	user      = "id1"
)

// consoleClient is the console as the issuer knows it: a page without a secret, so it needs PKCE.
type consoleClient struct {
	*storage.Client

	home string
	// lasts is how long its ID tokens do.
	lasts time.Duration
	// tokens counts those that were given.
	tokens atomic.Int64
}

func (c *consoleClient) GetID() string                    { return consoleID }
func (c *consoleClient) RedirectURIs() []string           { return []string{c.home} }
func (c *consoleClient) PostLogoutRedirectURIs() []string { return []string{c.home} }
func (c *consoleClient) AuthMethod() oidc.AuthMethod      { return oidc.AuthMethodNone }
func (c *consoleClient) LoginURL(id string) string        { return loginPage + "?id=" + id }
func (c *consoleClient) DevMode() bool                    { return false }
func (c *consoleClient) ApplicationType() op.ApplicationType {
	return op.ApplicationTypeUserAgent
}

func (c *consoleClient) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

func (c *consoleClient) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken}
}

func (c *consoleClient) IDTokenLifetime() time.Duration {
	c.tokens.Add(1)
	return c.lasts
}

func (p *provided) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	if c := p.console.Load(); c != nil && id == consoleID {
		return c, nil
	}
	return p.Storage.GetClientByClientID(ctx, id)
}

func (p *provided) AuthorizeClientIDSecret(ctx context.Context, id, secret string) error {
	return p.Storage.AuthorizeClientIDSecret(ctx, id, secret)
}

// login is the issuer's page: one button signs the user in.
func (i *issuer) login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<form method="post"><button id="yes">It is me</button></form>`)
		return
	}
	id := r.URL.Query().Get("id")
	at, _ := url.Parse(i.URL)
	if err := i.CheckUsernamePassword("test-user@"+at.Hostname(), "verysecure", id); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	http.Redirect(w, r, "/authorize/callback?id="+id, http.StatusFound)
}

// newConsoleWorld is a world whose console lets people sign in at an issuer.
func newConsoleWorld(t *testing.T, lasts time.Duration, more string) (*world, *issuer) {
	t.Helper()
	i := newIssuer(t, "k1", nil)
	w := newWorld(t, func(*world) string {
		return fmt.Sprintf("    issuers:\n      corp: {url: %q, audiences: [%s], client_id: %[2]s, scopes: [openid, offline_access], leeway: 2s, ca_file: %s, callers: [%q]}\n%s",
			i.URL, consoleID, i.ca, "sub="+user+" operator", more)
	})
	i.console.Store(&consoleClient{Client: storage.NativeClient(consoleID), home: w.address + "/", lasts: lasts})
	return w, i
}

// post changes a grant; it returns the answer's status and text.
func (w *world) post(issuer string, grant map[string]string, headers ...string) (int, string) {
	w.t.Helper()
	settings, err := tlsclient.Files{CAFile: w.certs.CAFile}.Config()
	require.NoError(w.t, err)
	body, err := json.Marshal(grant)
	require.NoError(w.t, err)
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.address+"/api/v1/sign-in/"+issuer, bytes.NewReader(body))
	require.NoError(w.t, err)
	request.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := (&http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}).RoundTrip(request)
	require.NoError(w.t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, string(content)
}

// TestSignInRefused: grants that are no good, and who may not sign in here. No answer and no log repeats a grant.
func TestSignInRefused(t *testing.T) {
	t.Parallel()
	silent := newIssuer(t, "k1", nil)
	silent.isAway.Store(true)
	w, i := newConsoleWorld(t, time.Minute, fmt.Sprintf("      silent: {url: %q, audiences: [x], client_id: x, ca_file: %s, callers: ['sub=* viewer']}\n      machines: {url: 'https://m.invalid', audiences: [y], callers: ['sub=* viewer']}\n", silent.URL, silent.ca))
	code := map[string]string{"code": "made-up-code", "code_verifier": "v", "redirect_uri": w.address + "/"}
	refused := func(status int, with, issuer string, grant map[string]string, headers ...string) {
		t.Helper()
		got, text := w.post(issuer, grant, headers...)
		assert.Equal(t, status, got, text)
		assert.Contains(t, text, with)
		assert.NotContains(t, text, "made-up")
	}
	var list struct{ Issuers []map[string]string }
	require.Eventually(t, func() bool {
		return json.Unmarshal([]byte(w.is(http.StatusOK, "GET", "/sign-in", "")), &list) == nil && len(list.Issuers) == 1
	}, patience, tick, "an issuer that was not reached yet is not offered")
	assert.Equal(t, map[string]string{
		"name": "corp", "issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "end_session_endpoint": i.URL + "/end_session",
		"client_id": consoleID, "scope": "openid offline_access",
	}, list.Issuers[0])
	refused(http.StatusUnauthorized, "the issuer corp refused the sign-in", "corp", code)
	refused(http.StatusUnauthorized, "the issuer corp refused the sign-in", "corp", map[string]string{"refresh_token": "made-up-token"})
	refused(http.StatusNotFound, "no issuer of that name", "other", code)
	refused(http.StatusNotFound, "no issuer of that name", "machines", code)
	refused(http.StatusServiceUnavailable, "the issuer silent did not answer", "silent", code)
	refused(http.StatusForbidden, "another site", "corp", code, "Origin", "https://elsewhere.example", "Sec-Fetch-Site", "cross-site")
	refused(http.StatusUnsupportedMediaType, "application/json", "corp", code, "Content-Type", "text/plain")
	refused(http.StatusBadRequest, "give code, code_verifier and redirect_uri, or refresh_token", "corp", map[string]string{"code": "made-up-code"})
	refused(http.StatusBadRequest, "give code", "corp", map[string]string{"code": "c", "code_verifier": "v", "redirect_uri": "r", "refresh_token": "made-up"})
	refused(http.StatusBadRequest, "must be a JSON object", "corp", map[string]string{"codes": "made-up"})
	refused(http.StatusBadRequest, "more than 16384 bytes", "corp", map[string]string{"code": strings.Repeat("x", 17<<10)})
	assert.NotContains(t, w.log.String(), "made-up")
}

// tab is one of headless Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // It is how chromedp names a tab.
}

func newTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("ignore-certificate-errors", true)) // Bridge and issuer have certificates of the test.
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx), "start Chromium; scripts/provision.sh installs it")
	return &tab{t, ctx}
}

// until waits for an expression to be true, whatever page there is meanwhile.
func (b *tab) until(expression string) {
	b.t.Helper()
	text := ""
	require.Eventually(b.t, func() bool {
		text, _ = chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + " " + document.body.innerText`))
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && is
	}, patience, tick, "%s: the page says %s", expression, &text)
}

// press waits for a button, and presses it.
func (b *tab) press(text string) {
	b.t.Helper()
	button := fmt.Sprintf(`[...document.querySelectorAll('button')].find((b) => b.textContent === %q)`, text)
	b.until(button + ` !== undefined`)
	_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](button+`.click() || true`))
	require.NoError(b.t, err)
}

func (b *tab) open(address string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Navigate(address))
	require.NoError(b.t, err)
}

// TestSignIn signs in to the console at an issuer, comes back to the page that was asked for, stays signed in for longer
// than a token lasts, changes something under that name, and signs out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	w, i := newConsoleWorld(t, 15*time.Second, "") // So each call finds a token that is about to end, as the stream does.
	b := newTab(t)
	b.open(w.address + "/#/jobs")
	b.until(`document.querySelector('dialog h2')?.textContent === 'Sign in'`)
	b.press("Sign in with corp")
	b.press("It is me")
	b.until(`document.getElementById('who')?.innerText.includes('corp/` + user + `')`)
	b.until(`location.search === '' && location.hash === '#/jobs'`)
	given := i.console.Load().tokens.Load()
	b.until(`document.getElementById('live').textContent === 'live'`)
	require.Eventually(t, func() bool { return i.console.Load().tokens.Load() > given }, patience, tick, "tokens are renewed")
	b.until(`document.getElementById('live').textContent === 'live'`)
	_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`(location.hash = '#/queue?queue=orders') !== ''`))
	require.NoError(t, err)
	b.press("Pause …")
	b.press("Pause")
	require.Eventually(t, func() bool {
		return strings.Contains(w.is(http.StatusOK, "GET", "/audit?queue=orders", staticToken), "corp/"+user)
	}, patience, tick, "the audit names who has signed in")

	b.press("Sign out")
	b.until(`document.querySelector('dialog h2')?.textContent === 'Sign in' && sessionStorage.getItem('delaybridge.token') === null`)
	b.open(w.address + "/?code=stolen&state=guessed")
	b.until(`document.getElementById('notes').innerText.includes('not begun in this tab') && location.search === ''`)
}
