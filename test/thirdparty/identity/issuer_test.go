package identity_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// audience is for whom the issuers' tokens are.
const audience = "delaybridge"

// issuer is an OpenID provider that runs in the test, with TLS. Its clients log in by their own name and password.
type issuer struct {
	*httptest.Server
	*provided

	ca string
	// isAway closes each connection that asks for keys.
	isAway atomic.Bool
}

func newIssuer(t *testing.T, keyID string, groups map[string][]string) *issuer {
	t.Helper()
	i := &issuer{}
	var handler http.Handler
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAboutKeys := strings.Contains(r.URL.Path, "keys") || strings.Contains(r.URL.Path, "well-known"); isAboutKeys && i.isAway.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == loginPage {
			i.login(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	i.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	i.StartTLS()
	t.Cleanup(i.Close)
	i.provided = &provided{Storage: storage.NewStorage(storage.NewUserStore(i.URL)), groups: groups}
	i.rotate(t, keyID)
	var err error
	handler, err = op.NewProvider(&op.Config{CryptoKeyId: "test", AuthMethodPost: true, GrantTypeRefreshToken: true, CodeMethodS256: true}, i.provided, op.StaticIssuer(i.URL))
	require.NoError(t, err)
	i.ca = writeCA(t, i.Server)
	return i
}

// writeCA writes a server's certificate, which signs itself, to a file.
func writeCA(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return path
}

// token is one that a client gets by its login.
func (i *issuer) token(ctx context.Context, client string) (token string, err error) {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "client_secret": {client}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.URL+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := i.Client().Do(request)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(content, &answer); err != nil || answer.Token == "" {
		return "", errors.Join(err, errors.New(response.Status+": "+string(content)))
	}
	return answer.Token, nil
}

// provided is the storage of the provider's example, whose clients and keys are ours.
type provided struct {
	*storage.Storage

	groups  map[string][]string // by client
	console atomic.Pointer[consoleClient]
	mu      sync.Mutex
	key     *key
}

// rotate replaces the key; tokens of the one before are no longer good.
func (p *provided) rotate(t *testing.T, id string) {
	t.Helper()
	made, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = &key{id, made}
}

func (p *provided) current() *key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}

func (p *provided) SigningKey(context.Context) (op.SigningKey, error) { return p.current(), nil }

func (p *provided) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{public{p.current()}}, nil
}

func (p *provided) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (p *provided) ClientCredentials(_ context.Context, id, secret string) (op.Client, error) {
	if _, known := p.groups[id]; !known || secret != id {
		return nil, errors.New("wrong client or password")
	}
	return client{storage.WebClient(id, secret)}, nil
}

func (p *provided) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: id, Audience: []string{audience}, Scopes: scopes}, nil
}

func (p *provided) GetPrivateClaimsFromScopes(_ context.Context, user, id string, _ []string) (map[string]any, error) {
	claims := map[string]any{}
	for _, name := range []string{user, id} {
		if groups := p.groups[name]; len(groups) > 0 {
			maps.Copy(claims, map[string]any{"groups": groups})
		}
	}
	return claims, nil
}

// client is one whose access tokens are JWTs.
type client struct{ *storage.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (client) GrantTypes() []oidc.GrantType        { return []oidc.GrantType{oidc.GrantTypeClientCredentials} }
func (client) IDTokenLifetime() time.Duration      { return 5 * time.Minute }

type key struct {
	id      string
	private *rsa.PrivateKey
}

func (k *key) ID() string                                  { return k.id }
func (k *key) Key() any                                    { return k.private }
func (k *key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

type public struct{ *key }

func (p public) Key() any                           { return &p.private.PublicKey }
func (p public) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (p public) Use() string                        { return "sig" }
