// Package accesstest signs JWTs for tests, as an issuer does.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Audience is for whom the tokens are, unless their claims say so.
const Audience = "delaybridge"

// Signer is an issuer with one key.
type Signer struct {
	// Issuer is its URL, KeyID that of its key.
	Issuer, KeyID string

	key *ecdsa.PrivateKey
}

// NewSigner makes an issuer with a new key.
func NewSigner(t testing.TB, issuer, keyID string) *Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	return &Signer{Issuer: issuer, KeyID: keyID, key: key}
}

// Public is its key as it is published.
func (s *Signer) Public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.KeyID, Algorithm: string(jose.ES256), Use: "sig"}
}

// Private is its key.
func (s *Signer) Private() *ecdsa.PrivateKey { return s.key }

// Publish writes its key, and those of others, to a file.
func (s *Signer) Publish(t testing.TB, path string, others ...*Signer) {
	t.Helper()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{s.Public()}}
	for _, other := range others {
		set.Keys = append(set.Keys, other.Public())
	}
	content, err := json.Marshal(set)
	fatal(t, err)
	fatal(t, os.WriteFile(path, content, 0o600))
}

// Token is a token of a subject that is good for five minutes. What is given in claims takes the place of its own;
// nil leaves one out.
func (s *Signer) Token(t testing.TB, subject string, claims map[string]any) string {
	t.Helper()
	now := time.Now()
	all := map[string]any{
		"iss": s.Issuer, "aud": Audience, "sub": subject, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return Sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: s.key}, map[jose.HeaderKey]any{"kid": s.KeyID}, all)
}

// Sign signs claims by any key, with any headers.
func Sign(t testing.TB, key jose.SigningKey, headers map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	for name, value := range headers {
		options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(key, options)
	fatal(t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	fatal(t, err)
	return token
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
