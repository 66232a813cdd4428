package access

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func fileOf(t testing.TB, content string) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	file, err := Open(path, nil)
	require.NoError(t, err)
	return file
}

// TestLines: each condition asks for an attribute: a text, one of a list, or one in an object.
func TestLines(t *testing.T) {
	t.Parallel()
	a := attributes{
		"sub": "system:serviceaccount:shop:checkout", "groups": []any{"a", "Payment Ops", 7.0}, "scope": "read write", "email_verified": true, "tenant": 42.0,
		"kubernetes.io": map[string]any{"namespace": "shop", "serviceaccount": map[string]any{"name": "checkout"}},
		"realm_access":  map[string]any{"roles": []any{"ops"}}, "https://example.com/roles": []any{"x"}, "empty": "", "nothing": nil, "object": map[string]any{"a": "b"},
	}
	for text, fits := range map[string]bool{
		"sub=system:serviceaccount:shop:checkout viewer": true, "sub=system:serviceaccount:shop:* viewer": true, "sub=*:checkout viewer": true,
		"sub=system:serviceaccount:shop viewer": false, "sub=checkout viewer": false, "sub=system.serviceaccount.shop.checkout viewer": false,
		"groups=a viewer": true, `"groups=Payment Ops" viewer`: true, "groups=7 viewer": true, "groups=b viewer": false, "groups=A viewer": false,
		"scope=write viewer": true, "scope=writ viewer": false, "email_verified=true viewer": true, "tenant=42 viewer": true,
		"kubernetes.io.namespace=shop viewer": true, "kubernetes.io.serviceaccount.name=checkout viewer": true, "kubernetes.io=* viewer": false,
		"realm_access.roles=ops viewer": true, "https://example.com/roles=x viewer": true, "realm_access.roles.x=ops viewer": false,
		"missing=* viewer": false, "empty=* viewer": true, "nothing=* viewer": false, "object=* viewer": false, ".=* viewer": false, "object.=* viewer": false,
		"groups=a tenant=42 viewer": true, "groups=a tenant=43 viewer": false, "groups=a missing=x viewer": false, "missing=x groups=a viewer": false, "tenant=43 groups=a viewer": false,
	} {
		all, err := parseLines([]string{text})
		require.NoError(t, err, text)
		_, err = all.match(a)
		assert.Equal(t, fits, err == nil, text)
	}
	all, err := parseLines([]string{"groups=b operator", "groups=a producer queues=q  topics=x,y name=n rate=3", "sub=* viewer"})
	require.NoError(t, err)
	given, err := all.match(a)
	require.NoError(t, err)
	assert.Equal(t, &allowance{Producer, "n", []string{"q"}, []string{"x", "y"}, 3}, given, "the first that fits")

	for text, says := range map[string]string{
		"": "cannot be read", "viewer": "must begin with ATTRIBUTE=VALUE", "groups=a": "must have a role", "groups=a admin": "must have a role",
		"=a viewer": "an attribute and a value", "groups= viewer": "an attribute and a value", "groups=a viewer topic=x": "unknown field",
		"groups=a viewer rate=0": "rate must be", "groups=a viewer queues=": "has no value", `"groups=a viewer`: "cannot be read", "groups=a viewer\nsub=* operator": "cannot be read",
	} {
		_, err := parseLines([]string{"sub=x viewer", text})
		require.ErrorContains(t, err, says, "%q", text)
		require.ErrorContains(t, err, "line 2", "%q", text)
	}
	_, err = parseLines(make([]string, mostLines+1))
	require.ErrorContains(t, err, "has 1001 lines, allowed are 1000")
}

// TestSettingsProblems: each names its key.
func TestSettingsProblems(t *testing.T) {
	t.Parallel()
	good := Issuer{URL: "https://a.example", Audiences: []string{"x"}, Callers: []string{"sub=* viewer"}}
	with := func(change func(*Issuer)) Settings {
		i := good
		change(&i)
		return Settings{Issuers: map[string]Issuer{"corp": i}}
	}
	many := Settings{Issuers: map[string]Issuer{}}
	for n := range mostIssuers + 1 {
		i := good
		i.URL += fmt.Sprint("/", n)
		many.Issuers[fmt.Sprint("i", n)] = i
	}
	assert.Empty(t, with(func(*Issuer) {}).Check())
	for key, s := range map[string]Settings{
		"issuers.corp.url":                with(func(i *Issuer) { i.URL = "http://a.example" }),
		"issuers.corp.jwks_url":           with(func(i *Issuer) { i.JWKSURL = "http://a.example" }),
		"issuers.corp.jwks_file":          with(func(i *Issuer) { i.JWKSURL, i.JWKSFile = "https://a.example", "x" }),
		"issuers.corp.algorithms":         with(func(i *Issuer) { i.Algorithms = []string{"HS256"} }),
		"issuers.corp.callers":            with(func(i *Issuer) { i.Callers = []string{"viewer"} }),
		"issuers.corp.scopes":             with(func(i *Issuer) { i.ClientID, i.Audiences, i.Scopes = "c", []string{"c"}, []string{"groups"} }),
		"issuers.corp.client_id":          with(func(i *Issuer) { i.ClientID = "none of the audiences" }),
		"issuers.corp.client_secret_file": with(func(i *Issuer) { i.SecretFile = "x" }),
		"issuers.other.url":               {Issuers: map[string]Issuer{"corp": good, "other": good}},
		"issuers.certificate":             {Issuers: map[string]Issuer{"certificate": good}},
		"issuers":                         many,
		"certificates":                    {Certificates: []string{"cn=a"}},
	} {
		problems := s.Check()
		require.Len(t, problems, 1, key)
		assert.Equal(t, key, problems[0].Key)
	}
}

// TestLimiters: a caller keeps its limiter while it is not full, and there is a bound.
func TestLimiters(t *testing.T) {
	t.Parallel()
	l, a := &limiters{}, &allowance{rate: 2}
	first := l.of("ann", a)
	assert.Same(t, first, l.of("ann", a))
	assert.NotSame(t, first, l.of("bob", a))
	assert.NotSame(t, first, l.of("ann", &allowance{rate: 3}), "she may call more often now")
	for n := range mostLimiters - len(l.all) {
		l.of(fmt.Sprint(n), a)
	}
	assert.False(t, l.of("one more", a).Allow())
	assert.Same(t, first, l.of("ann", a))
	for _, known := range l.all {
		known.at = known.at.Add(-refill - time.Millisecond)
	}
	assert.True(t, l.of("one more", a).Allow())
	assert.Len(t, l.all, 1)
}

func FuzzLines(f *testing.F) {
	f.Add(`sub=* "groups=a b" viewer name=x`, `{"sub": "a", "a.b": {"c": [1]}}`)
	f.Fuzz(func(t *testing.T, text, value string) {
		all, err := parseLines([]string{text})
		if err != nil {
			return
		}
		if len(all) != 1 || len(all[0].conditions) == 0 || all[0].role == "" {
			t.Fatalf("%q: no condition or no role, and no error", text)
		}
		_, _ = all.match(attributes{"sub": value, "groups": []any{value}})
	})
}
