package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/api/access/accesstest"
)

// leaf is a certificate with these names.
func leaf(t testing.TB, cn string, uris []string, dns ...string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: cn, OrganizationalUnit: []string{"payments"}}, DNSNames: dns, NotAfter: time.Now().Add(time.Hour)}
	for _, text := range uris {
		u, err := url.Parse(text)
		require.NoError(t, err)
		c.URIs = append(c.URIs, u)
	}
	return c
}

// call is one over TLS with a verified certificate, if there is one.
func call(t testing.TB, certificate *x509.Certificate, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://bridge.example/api/v1/x", http.NoBody)
	r.TLS = &tls.ConnectionState{}
	if certificate != nil {
		r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{certificate}, [][]*x509.Certificate{{certificate}}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// TestCertificates: the names in a certificate make its caller, by the lines that JWTs have, too.
func TestCertificates(t *testing.T) {
	t.Parallel()
	const shop = "spiffe://example.org/ns/shop/sa/checkout"
	g, err := NewGuard(Options{Settings: Settings{Certificates: []string{
		"uri=spiffe://example.org/ns/shop/* producer queues=orders name=shop", "dns=grafana.example viewer", "cn=ann ou=payments operator", "dns=ann viewer",
	}}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		want        string
		role        Role
	}{
		"uri":                            {leaf(t, "x", []string{shop}), "certificate/shop", Producer},
		"dns":                            {leaf(t, "", nil, "grafana.example"), "certificate/grafana.example", Viewer},
		"cn and ou":                      {leaf(t, "ann", nil), "certificate/ann", Operator},
		"the first line, the first name": {leaf(t, "ann", nil, "other.example", "grafana.example"), "certificate/other.example", Viewer},
	} {
		caller, err := g.Admit(call(t, c.certificate), roles, true)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, caller.Name, name)
		assert.Equal(t, c.role, caller.Role, name)
	}
	one, err := g.Admit(call(t, leaf(t, "x", []string{shop})), roles, true)
	require.NoError(t, err)
	renewed, err := g.Admit(call(t, leaf(t, "y", []string{shop})), roles, true)
	require.NoError(t, err)
	assert.Equal(t, one.Identity(), renewed.Identity(), "it was renewed")
	asCN, err := g.Admit(call(t, leaf(t, "ann", nil)), roles, true)
	require.NoError(t, err)
	asDNS, err := g.Admit(call(t, leaf(t, "x", nil, "ann")), roles, true)
	require.NoError(t, err)
	assert.NotEqual(t, asDNS.Identity(), asCN.Identity(), "a DNS name is no common name")
	assert.NotEqual(t, one.Identity(), asCN.Identity())

	ended := leaf(t, "ann", nil)
	ended.NotAfter = time.Now().Add(-time.Second)
	unverified := call(t, leaf(t, "ann", nil))
	unverified.TLS.VerifiedChains = nil
	for name, c := range map[string]struct {
		r      *http.Request
		status int
		says   string
	}{
		"none":                    {call(t, nil), http.StatusUnauthorized, "or a client certificate"},
		"plain":                   {&http.Request{Method: http.MethodGet, RemoteAddr: "127.0.0.1:1", Host: "localhost"}, http.StatusUnauthorized, "or a client certificate"},
		"a header says so":        {call(t, nil, "X-SSL-Client-Cert", "x", "X-Forwarded-Client-Cert", "URI="+shop), http.StatusUnauthorized, "or a client certificate"},
		"not verified":            {unverified, http.StatusUnauthorized, "or a client certificate"},
		"ended on the connection": {call(t, ended), http.StatusUnauthorized, "has expired"},
		"no line":                 {call(t, leaf(t, "bob", nil)), http.StatusForbidden, "certificate/bob may not call"},
		"no name":                 {call(t, leaf(t, "", nil)), http.StatusForbidden, "has no name"},
		"hidden":                  {call(t, leaf(t, "ann\u202e", nil)), http.StatusForbidden, "has no name"},
		"page of another site":    {call(t, leaf(t, "ann", nil), "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, "another site"},
	} {
		_, err := g.Admit(c.r, roles, true)
		refusal := new(Refusal)
		require.ErrorAs(t, err, &refusal, name)
		assert.Equal(t, c.status, refusal.Status, name)
		assert.Contains(t, refusal.Detail, c.says, name)
	}
}

// TestTokenBeforeCertificate: who sends a token is known by it alone, and gets no rights of the certificate, valid or not.
func TestTokenBeforeCertificate(t *testing.T) {
	t.Parallel()
	s := accesstest.NewSigner(t, "https://login.example/main", "k1")
	g, told := guarded(t, Options{Tokens: fileOf(t, "static-token producer name=shop\n"), Settings: Settings{
		Issuers: map[string]Issuer{"corp": issuerOf(t, s, "sub=* viewer")}, Certificates: []string{"cn=gateway operator"},
	}})
	told.until("corp fetched")
	gateway := leaf(t, "gateway", nil)
	for header, want := range map[string]string{
		"": "certificate/gateway", "Bearer static-token": "shop", "Bearer " + s.Token(t, "ann", nil): "corp/ann",
		"Bearer wrong-token": "", "Bearer " + s.Token(t, "ann", map[string]any{"exp": 1}): "", "Basic Z2F0ZXdheTo=": "", "Bearer ": "",
	} {
		r := call(t, gateway)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		caller, err := g.Admit(r, roles, true)
		if want == "" {
			require.ErrorContains(t, err, "token", header)
			continue
		}
		require.NoError(t, err, header)
		assert.Equal(t, want, caller.Name)
	}
}
