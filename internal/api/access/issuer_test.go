package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/api/access/accesstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// observer tells each fetch on a channel.
type observer chan string

func (o observer) IssuerFetched(issuer string, err error) {
	if err == nil {
		o <- issuer + " fetched"
		return
	}
	o <- issuer + " failed"
}
func (o observer) IssuerGone(issuer string) { o <- issuer + " gone" }

// until reads what is told up to that.
func (o observer) until(text string) {
	for said := range o {
		if said == text {
			return
		}
	}
}

// guarded runs a guard until the test ends.
func guarded(t *testing.T, o Options) (*Guard, observer) {
	t.Helper()
	told := make(observer, 1000)
	o.Observer = told
	g, err := NewGuard(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); g.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return g, told
}

// settle is what a guard says of a call with the token.
func (g *Guard) settle(t testing.TB, token string) (*Caller, *Refusal) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://bridge.example/api/v1/x", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	caller, err := g.Admit(r, roles, true)
	if err == nil {
		return caller, nil
	}
	refusal := new(Refusal)
	require.ErrorAs(t, err, &refusal)
	return caller, refusal
}

// issuerOf is an issuer whose keys are in a file.
func issuerOf(t testing.TB, s *accesstest.Signer, callers ...string) Issuer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	s.Publish(t, file)
	return Issuer{URL: s.Issuer, Audiences: []string{accesstest.Audience, "other"}, JWKSFile: file, Leeway: 30 * time.Second, Name: "sub", Callers: callers}
}

// TestJWT: what a token says makes its caller; the name and the rights are those of the first line that fits.
func TestJWT(t *testing.T) {
	t.Parallel()
	s := accesstest.NewSigner(t, "https://login.example/main", "k1")
	given := issuerOf(t, s, "groups=banned viewer rate=1", `"groups=Payment Operators" operator queues=pay topics=a,b`, "sub=shop-* producer name=shop")
	g, told := guarded(t, Options{Settings: Settings{Issuers: map[string]Issuer{"corp": given}}})
	told.until("corp fetched")
	ann, refused := g.settle(t, s.Token(t, "ann", map[string]any{"groups": []string{"x", "Payment Operators"}}))
	require.Nil(t, refused)
	assert.Equal(t, "corp/ann", ann.Name)
	assert.Equal(t, Operator, ann.Role)
	assert.True(t, ann.MayUse("pay") && !ann.MayUse("orders") && ann.MaySee("b") && !ann.MaySee("c"))
	shop, refused := g.settle(t, s.Token(t, "shop-7", nil))
	require.Nil(t, refused)
	assert.Equal(t, "corp/shop", shop.Name)
	again, _ := g.settle(t, s.Token(t, "shop-7", map[string]any{"aud": []string{"x", "other"}}))
	assert.Equal(t, shop.Identity(), again.Identity(), "the caller is the same, whatever its token")
	other, _ := g.settle(t, s.Token(t, "shop-8", nil))
	assert.NotEqual(t, shop.Identity(), other.Identity(), "whatever its name")

	limited := 0
	for range 5 {
		if _, refused := g.settle(t, s.Token(t, "bob", map[string]any{"groups": "banned"})); refused != nil && refused.Code == "rate_limited" {
			limited++
		}
	}
	assert.Positive(t, limited, "all tokens of a caller have one rate")

	nobody, refused := g.settle(t, s.Token(t, "eve", nil))
	require.NotNil(t, refused)
	assert.Equal(t, http.StatusForbidden, refused.Status)
	assert.Equal(t, "corp/eve", nobody.Name, "for the audit")
	assert.Equal(t, "corp/eve may not call: no line of its callers fits: none has the values of sub; the attribute groups is missing", refused.Detail)
}

// TestForgedTokens: nobody gets in with a token that the issuer has not signed for us, and for now.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	s := accesstest.NewSigner(t, "https://login.example/main", "k1")
	// other is trusted, too, has a key of the same id, and lets its callers do less.
	other := accesstest.NewSigner(t, "https://login.example/other", "k1")
	stranger := accesstest.NewSigner(t, "https://login.example/main", "k1")
	g, told := guarded(t, Options{Settings: Settings{Issuers: map[string]Issuer{
		"corp": issuerOf(t, s, "sub=* operator"), "partners": issuerOf(t, other, "sub=partner viewer"),
	}}})
	told.until("corp fetched")
	now := time.Now()
	good := map[string]any{"iss": s.Issuer, "aud": accesstest.Audience, "sub": "ann", "exp": now.Add(time.Minute).Unix()}
	spki, err := x509.MarshalPKIXPublicKey(s.Public().Key)
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})
	jwk, err := json.Marshal(s.Public())
	require.NoError(t, err)
	shared := func(secret []byte) string {
		return accesstest.Sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: secret}, map[jose.HeaderKey]any{"kid": "k1"}, good)
	}
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	embedded := jose.JSONWebKey{Key: mine, KeyID: "k1"}
	valid := s.Token(t, "ann", nil)
	parts := strings.Split(valid, ".")
	raw := base64.RawURLEncoding
	header := func(text string) string { return raw.EncodeToString([]byte(text)) }
	content, err := json.Marshal(good)
	require.NoError(t, err)

	for name, c := range map[string]struct{ token, says string }{
		"alg none":                   {header(`{"alg":"none"}`) + "." + raw.EncodeToString(content) + ".", "signatures that are taken"},
		"alg None":                   {header(`{"alg":"None","kid":"k1"}`) + "." + raw.EncodeToString(content) + ".", "signatures that are taken"},
		"no signature":               {parts[0] + "." + parts[1] + ".", "not signed"},
		"HS256 with the public key":  {shared(public), "signatures that are taken"},
		"HS256 with its DER":         {shared(spki), "signatures that are taken"},
		"HS256 with the JWK":         {shared(jwk), "signatures that are taken"},
		"another key of that id":     {stranger.Token(t, "ann", nil), "not signed"},
		"a key that it brings along": {accesstest.Sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: embedded}, map[jose.HeaderKey]any{"jwk": embedded.Public()}, good), "not signed"},
		"another curve":              {accesstest.Sign(t, jose.SigningKey{Algorithm: jose.ES384, Key: p384}, map[jose.HeaderKey]any{"kid": "k1"}, good), "not signed"},
		"content of another":         {parts[0] + "." + raw.EncodeToString(content) + "." + parts[2], "not signed"},
		"key id of nobody":           {accesstest.Sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: s.Private()}, map[jose.HeaderKey]any{"kid": "../k1"}, good), "no such key"},
		"critical header":            {accesstest.Sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: s.Private()}, map[jose.HeaderKey]any{"kid": "k1", "crit": []string{"x"}, "x": 1}, good), "not signed"},
		"issuer of nobody":           {s.Token(t, "ann", map[string]any{"iss": "https://evil.example"}), "issuer is not known"},
		"issuer with a slash":        {s.Token(t, "ann", map[string]any{"iss": s.Issuer + "/"}), "issuer is not known"},
		"no issuer":                  {s.Token(t, "ann", map[string]any{"iss": nil}), "issuer is not known"},
		"issuer that is a list":      {s.Token(t, "ann", map[string]any{"iss": []string{s.Issuer}}), "no JSON object"},
		"issuer confusion":           {other.Token(t, "ann", map[string]any{"iss": s.Issuer}), "not signed"},
		"issuer confusion, back":     {s.Token(t, "partner", map[string]any{"iss": other.Issuer}), "not signed"},
		"audience of others":         {s.Token(t, "ann", map[string]any{"aud": "billing"}), "meant for others"},
		"no audience":                {s.Token(t, "ann", map[string]any{"aud": nil}), "meant for others"},
		"audience beginning so":      {s.Token(t, "ann", map[string]any{"aud": "delaybridge2"}), "meant for others"},
		"expired":                    {s.Token(t, "ann", map[string]any{"exp": now.Add(-31 * time.Second).Unix()}), "has expired"},
		"no exp":                     {s.Token(t, "ann", map[string]any{"exp": nil}), "must have an end"},
		"exp that is a text":         {s.Token(t, "ann", map[string]any{"exp": "never"}), "not signed"},
		"not yet valid":              {s.Token(t, "ann", map[string]any{"nbf": now.Add(40 * time.Second).Unix()}), "not valid yet"},
		"issued in the future":       {s.Token(t, "ann", map[string]any{"iat": now.Add(40 * time.Second).Unix()}), "not valid yet"},
		"no sub":                     {s.Token(t, "ann", map[string]any{"sub": nil}), "must have a subject"},
		"huge":                       {s.Token(t, "ann", map[string]any{"x": strings.Repeat("x", mostJWT)}), "more than 8192 bytes"},
		"no JWT":                     {"somebody-elses-token", "token is not known"},
		"four dots":                  {valid + ".x.y", "token is not known"},
		"dots":                       {"..", "signatures that are taken"},
		"no base64":                  {"a.b.c", "signatures that are taken"},
	} {
		_, refused := g.settle(t, c.token)
		require.NotNil(t, refused, name)
		assert.Equal(t, http.StatusUnauthorized, refused.Status, "%s: %s", name, refused.Detail)
		assert.Contains(t, refused.Detail, c.says, name)
		assert.NotContains(t, refused.Detail, "ann", name)
	}
	for name, more := range map[string]map[string]any{
		"expired within the leeway": {"exp": now.Add(-20 * time.Second).Unix()}, "valid within the leeway": {"nbf": now.Add(20 * time.Second).Unix()},
		"several audiences": {"aud": []string{"billing", accesstest.Audience}}, "as it is": nil,
	} {
		_, refused := g.settle(t, s.Token(t, "ann", more))
		assert.Nil(t, refused, name)
	}
	for name, subject := range map[string]string{"line": "ann\nroot", "direction": "ann\u202eroot", "length": strings.Repeat("a", mostName+1)} {
		_, refused := g.settle(t, s.Token(t, subject, nil))
		require.NotNil(t, refused, name)
		assert.Contains(t, refused.Detail, "the attribute sub must name the caller")
	}
}

// TestAlgorithms: an issuer may be held to some algorithms; shared secrets are never among them.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	s := accesstest.NewSigner(t, "https://login.example/main", "k1")
	given := issuerOf(t, s, "sub=* viewer")
	given.Algorithms = []string{"EdDSA"}
	g, told := guarded(t, Options{Settings: Settings{Issuers: map[string]Issuer{"corp": given}}})
	told.until("corp fetched")
	_, refused := g.settle(t, s.Token(t, "ann", nil))
	require.NotNil(t, refused)
	assert.Contains(t, refused.Detail, "another algorithm")
	for _, bad := range []string{"HS256", "none", "es256", ""} {
		given.Algorithms = []string{bad}
		require.ErrorContains(t, g.Change(Settings{Issuers: map[string]Issuer{"corp": given}}), "admin.auth.issuers.corp.algorithms")
	}
}

// TestIssuerAway: while an issuer's keys have never been fetched its callers get 503, and all others are served.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	here, away := accesstest.NewSigner(t, "https://here.example", "k1"), accesstest.NewSigner(t, "https://127.0.0.1:1", "k1")
	missing := issuerOf(t, away, "sub=* viewer")
	missing.JWKSFile = ""
	g, told := guarded(t, Options{Settings: Settings{Issuers: map[string]Issuer{"here": issuerOf(t, here, "sub=* viewer"), "away": missing}}})
	told.until("away failed")
	_, refused := g.settle(t, here.Token(t, "ann", nil))
	assert.Nil(t, refused)
	_, refused = g.settle(t, away.Token(t, "ann", nil))
	require.NotNil(t, refused)
	assert.Equal(t, http.StatusServiceUnavailable, refused.Status)
	assert.Equal(t, "unavailable", refused.Code)
	assert.Contains(t, refused.Detail, "issuer away")
}

// TestChange: settings count for the next call; an issuer that stays keeps its keys; the last credential stays.
func TestChange(t *testing.T) {
	t.Parallel()
	s, other := accesstest.NewSigner(t, "https://login.example/main", "k1"), accesstest.NewSigner(t, "https://login.example/other", "k1")
	corp, partners := issuerOf(t, s, "sub=ann operator"), issuerOf(t, other, "sub=* viewer")
	g, told := guarded(t, Options{Settings: Settings{Issuers: map[string]Issuer{"corp": corp}}})
	told.until("corp fetched")
	token := s.Token(t, "ann", nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://bridge.example/api/v1/events", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	ann, err := g.Admit(r, roles, false)
	require.NoError(t, err)
	assert.True(t, g.Holds(r, ann))

	require.NoError(t, g.Change(Settings{Issuers: map[string]Issuer{"corp": corp, "partners": partners}}))
	told.until("partners fetched")
	_, refused := g.settle(t, other.Token(t, "bob", nil))
	assert.Nil(t, refused)
	assert.True(t, g.Holds(r, ann), "nothing has changed for her")

	corp.Callers = []string{"sub=ann operator topics=a"}
	require.NoError(t, g.Change(Settings{Issuers: map[string]Issuer{"corp": corp}}))
	assert.False(t, g.Holds(r, ann), "she may see less")
	now, refused := g.settle(t, token)
	require.Nil(t, refused, "its keys are still there")
	assert.Equal(t, []string{"a"}, now.Topics())
	told.until("partners gone")
	_, refused = g.settle(t, other.Token(t, "bob", nil))
	require.NotNil(t, refused)

	wrong := corp
	wrong.Callers = []string{"operator"}
	require.ErrorContains(t, g.Change(Settings{Issuers: map[string]Issuer{"corp": wrong}}), "admin.auth.issuers.corp.callers")
	require.ErrorContains(t, g.Change(Settings{}), "needs a restart")
	_, refused = g.settle(t, token)
	assert.Nil(t, refused, "what is wrong has changed nothing")
}

// TestTokensBesideIssuers: a token of the file stays one whatever it looks like.
func TestTokensBesideIssuers(t *testing.T) {
	t.Parallel()
	s := accesstest.NewSigner(t, "https://login.example/main", "k1")
	g, told := guarded(t, Options{
		Tokens:   fileOf(t, "a.b.c-token viewer name=dots\nstatic-token operator name=ann\n"),
		Settings: Settings{Issuers: map[string]Issuer{"corp": issuerOf(t, s, "sub=* producer")}},
	})
	told.until("corp fetched")
	for token, want := range map[string]string{"a.b.c-token": "dots", "static-token": "ann", s.Token(t, "ann", nil): "corp/ann"} {
		caller, refused := g.settle(t, token)
		require.Nil(t, refused)
		assert.Equal(t, want, caller.Name)
	}
	none := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/api/v1/x", http.NoBody)
	none.RemoteAddr = "127.0.0.1:1"
	_, err := g.Admit(none, roles, false)
	require.ErrorContains(t, err, "needs the header Authorization")
}
