package jwks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKey(t testing.TB, id string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig"}
}

func setOf(t testing.TB, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	require.NoError(t, err)
	return content
}

// TestDecide: keys count for a day after they were fetched, and an unknown one is asked for once in
// ten seconds.
func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := []jose.JSONWebKey{{KeyID: "a"}}
	fetched := func(ago time.Duration) state {
		return state{Found: Found{Keys: one}, fetchedAt: now.Add(-ago), beganAt: now.Add(-ago)}
	}
	failing := fetched(KeepFor)
	failing.beganAt, failing.failed = now.Add(-time.Second), true
	over := failing
	over.fetchedAt = now.Add(-KeepFor - time.Second)
	asking := fetched(time.Second)
	asking.isUnderWay = true
	for name, c := range map[string]struct {
		state state
		id    string
		want  answer
	}{
		"known":                         {fetched(time.Second), "a", found},
		"the only one":                  {fetched(time.Second), "", found},
		"unknown, just fetched":         {fetched(askEvery - time.Second), "b", isUnknown},
		"unknown, fetched a while ago":  {fetched(askEvery), "b", ask},
		"unknown, a fetch is under way": {asking, "b", ask},
		"known, a fetch is under way":   {asking, "a", found},
		"never fetched":                 {state{}, "a", ask},
		"never fetched, just tried":     {state{beganAt: now, failed: true}, "a", isAway},
		"known, in an outage":           {failing, "a", found},
		"unknown, in an outage":         {failing, "b", isUnknown},
		"known, after a day of outage":  {over, "a", isAway},
	} {
		_, got := c.state.decide(c.id, now)
		assert.Equal(t, c.want, got, name)
	}
	two := state{Found: Found{Keys: []jose.JSONWebKey{{KeyID: "a"}, {}}}, fetchedAt: now, beganAt: now}
	_, got := two.decide("", now)
	assert.Equal(t, isUnknown, got, "a token that names no key, and there are two")
}

// TestParse: what is no public key for signatures is left out, and a set has bounds.
func TestParse(t *testing.T) {
	t.Parallel()
	good := newKey(t, "good")
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	encrypts := newKey(t, "encrypts")
	encrypts.Use = "enc"
	set := setOf(t, good, encrypts, jose.JSONWebKey{Key: short.Public(), KeyID: "short"}, jose.JSONWebKey{Key: private, KeyID: "private"},
		jose.JSONWebKey{Key: []byte("a shared secret that everybody may read"), KeyID: "shared"})
	set = []byte(strings.Replace(string(set), `{"keys":[`, `{"keys":[{"kty":"XYZ","kid":"new"},{"kty":"EC","kid":"half"},`, 1))
	keys, err := parse(set)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.Equal(t, "good", keys[0].KeyID)

	for content, says := range map[string]string{
		``: "no JSON", `[]`: "no JSON", `{}`: "no public key", `{"keys":[{"kty":"oct","k":"AAAA"}]}`: "no public key",
		`{"keys":[` + strings.Repeat(`{},`, mostKeys) + `{}]}`: "101 keys, allowed are 100",
	} {
		_, err := parse([]byte(content))
		require.ErrorContains(t, err, says)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://login.example/realms/a", "https://login.example:8443", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost"} {
		require.NoError(t, CheckURL(good), good)
	}
	for _, bad := range []string{"", "login.example", "http://login.example", "https://", "https://user:secret@login.example", "https://login.example#a", "file:///etc/passwd", "https:login", "http://127.0.0.1.evil"} {
		err := CheckURL(bad)
		require.Error(t, err, bad)
		assert.NotContains(t, err.Error(), "secret")
	}
}

// authority is an issuer of which only what a bridge asks is there.
type authority struct {
	*httptest.Server

	keys     atomic.Pointer[[]byte]
	describe atomic.Pointer[func(w http.ResponseWriter)]
	isDown   atomic.Bool
	fetches  atomic.Int64
	mu       sync.Mutex
	tokens   []string // that were shown
}

func newAuthority(t testing.TB, serve func(*httptest.Server), keys ...jose.JSONWebKey) *authority {
	t.Helper()
	a := &authority{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wellKnown, func(w http.ResponseWriter, r *http.Request) {
		a.note(r)
		if describe := a.describe.Load(); describe != nil {
			(*describe)(w)
			return
		}
		_, _ = fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, a.URL, a.URL+"/keys")
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		a.note(r)
		a.fetches.Add(1)
		if a.isDown.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write(*a.keys.Load())
	})
	a.Server = httptest.NewUnstartedServer(mux)
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // Of handshakes that fail.
	serve(a.Server)
	t.Cleanup(a.Close)
	a.set(t, keys...)
	return a
}

func (a *authority) set(t testing.TB, keys ...jose.JSONWebKey) { a.keys.Store(new(setOf(t, keys...))) }

func (a *authority) note(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, r.Header.Get("Authorization"))
}

// TestFetch asks issuers that lie, send elsewhere, are too long or want a token.
func TestFetch(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, (*httptest.Server).Start, newKey(t, "a"))
	elsewhere := newAuthority(t, (*httptest.Server).Start, newKey(t, "b"))
	fetch := func(c Config) (ids []string, err error) {
		found, err := Fetch(t.Context(), c)
		for _, key := range found.Keys {
			ids = append(ids, key.KeyID)
		}
		return ids, err
	}
	ids, err := fetch(Config{Issuer: a.URL})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, ids)
	ids, err = fetch(Config{Issuer: "https://nowhere.invalid", URL: a.URL + "/keys"})
	require.NoError(t, err, "the configuration says where the keys are")
	assert.Equal(t, []string{"a"}, ids)

	says := func(text string, args ...any) {
		a.describe.Store(new(func(w http.ResponseWriter) { _, _ = fmt.Fprintf(w, text, args...) }))
	}
	refused := func(with string) {
		t.Helper()
		_, err := fetch(Config{Issuer: a.URL})
		require.ErrorContains(t, err, with)
	}
	says(`{"issuer": %q, "jwks_uri": %q}`, elsewhere.URL, a.URL+"/keys")
	refused("the server there is the issuer")
	says(`{"issuer": %q, "jwks_uri": "http://keys.example/"}`, a.URL)
	refused("must be https")
	says(`{"issuer": %q, "jwks_uri": "file:///etc/passwd"}`, a.URL)
	refused("jwks_uri")
	says(`{"issuer": %q}`, a.URL)
	refused("jwks_uri")
	says(`<html>`)
	refused("no JSON")
	says(`{"issuer": %q, "jwks_uri": %q, "more": %q}`, a.URL, a.URL+"/keys", strings.Repeat("x", mostBytes))
	refused("more than 262144 bytes")
	a.describe.Store(new(func(w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere.URL+wellKnown)
		w.WriteHeader(http.StatusFound)
	}))
	refused("redirects are not followed")
	says(`{"issuer": %q, "jwks_uri": %q}`, a.URL, a.URL+"/keys")
	a.keys.Store(new([]byte(strings.Repeat(" ", mostBytes+1))))
	refused("more than 262144 bytes")

	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("our-own-secret\n"), 0o600))
	says(`{"issuer": %q, "jwks_uri": %q}`, a.URL, elsewhere.URL+"/keys")
	a.tokens = nil
	ids, err = fetch(Config{Issuer: a.URL, TokenFile: token})
	require.NoError(t, err, "the keys may be on another host")
	assert.Equal(t, []string{"b"}, ids)
	assert.Equal(t, []string{"Bearer our-own-secret"}, a.tokens)
	assert.Equal(t, []string{""}, elsewhere.tokens, "which the configuration does not name, so it gets no token")

	file := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(file, setOf(t, newKey(t, "f")), 0o600))
	ids, err = fetch(Config{Issuer: "https://nowhere.invalid", File: file})
	require.NoError(t, err)
	assert.Equal(t, []string{"f"}, ids)
}

// TestFetchTLS: the issuer's certificate is verified, and an issuer with TLS may not send us to keys without.
func TestFetchTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, (*httptest.Server).StartTLS, newKey(t, "a"))
	plain := newAuthority(t, (*httptest.Server).Start, newKey(t, "b"))
	_, err := Fetch(t.Context(), Config{Issuer: a.URL})
	require.ErrorContains(t, err, "certificate")
	roots := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}), 0o600))
	found, err := Fetch(t.Context(), Config{Issuer: a.URL, CAFile: roots})
	require.NoError(t, err)
	assert.Equal(t, "a", found.Keys[0].KeyID)
	a.describe.Store(new(func(w http.ResponseWriter) {
		_, _ = fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, a.URL, plain.URL+"/keys")
	}))
	_, err = Fetch(t.Context(), Config{Issuer: a.URL, CAFile: roots})
	require.ErrorContains(t, err, "must be https, as the issuer is")
	a.describe.Store(new(func(w http.ResponseWriter) {
		_, _ = fmt.Fprintf(w, `{"issuer": %[1]q, "jwks_uri": "%[1]s/keys", "authorization_endpoint": "%[1]s/in", "token_endpoint": "%[2]s/token", "end_session_endpoint": "javascript:alert(1)"}`, a.URL, plain.URL)
	}))
	found, err = Fetch(t.Context(), Config{Issuer: a.URL, CAFile: roots})
	require.NoError(t, err, "tokens can be checked")
	assert.Equal(t, Endpoints{Authorization: a.URL + "/in"}, found.Endpoints, "nobody is sent elsewhere")
}

// source runs a source until the test ends. Each fetch is told on the channel.
func source(t *testing.T, c Config) (*Source, chan error, *testenv.Log) {
	t.Helper()
	fetched, logs := make(chan error, 1000), &testenv.Log{}
	s := New(c, slog.New(slog.NewTextHandler(logs, nil)), func(err error) { fetched <- err })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s, fetched, logs
}

// TestFlood: many calls with keys that do not exist cost the issuer one fetch, and delay no call with one that does.
func TestFlood(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, (*httptest.Server).Start, newKey(t, "a"))
	s, fetched, _ := source(t, Config{Issuer: a.URL})
	require.NoError(t, <-fetched)
	s.mu.Lock()
	s.state.beganAt = s.state.beganAt.Add(-askEvery) // As if that was a while ago.
	s.mu.Unlock()
	var calls sync.WaitGroup
	for i := range 1000 {
		calls.Go(func() {
			_, err := s.Find(t.Context(), fmt.Sprint("junk-", i))
			assert.Error(t, err)
			keys, err := s.Find(t.Context(), "a")
			assert.NoError(t, err)
			assert.Len(t, keys, 1)
		})
	}
	calls.Wait()
	assert.EqualValues(t, 2, a.fetches.Load(), "the first, and one for all of them")
}

// TestAskedBeforeItRuns: a call that asked before the fetch began has its answer by that one.
func TestAskedBeforeItRuns(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, (*httptest.Server).Start, newKey(t, "a"))
	var s *Source
	fetched := make(chan int, 1)
	s = New(Config{Issuer: a.URL}, slog.New(slog.DiscardHandler), func(error) { fetched <- len(s.asked) })
	answered := make(chan error)
	go func() {
		_, err := s.Find(t.Context(), "a")
		answered <- err
	}()
	for isWaiting := false; !isWaiting; {
		s.mu.Lock()
		isWaiting = s.waiting > 0
		s.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	assert.Zero(t, <-fetched, "nobody asks for another one")
	require.NoError(t, <-answered)
	cancel()
	<-ended
}

// TestMostWaiting: a call for which there is no room waits for nothing, and asks for nothing.
func TestMostWaiting(t *testing.T) {
	t.Parallel()
	s := New(Config{Issuer: "https://nowhere.invalid"}, slog.New(slog.DiscardHandler), func(error) {})
	s.waiting = mostWaiting
	_, err := s.Find(t.Context(), "a")
	require.ErrorIs(t, err, ErrAway)
	assert.Empty(t, s.asked)
}

// TestRotation: a new key is found by the call that first needs it, and an outage takes nothing away.
func TestRotation(t *testing.T) {
	t.Parallel()
	first, second := newKey(t, "first"), newKey(t, "second")
	a := newAuthority(t, (*httptest.Server).Start, first)
	s, fetched, logs := source(t, Config{Issuer: a.URL})
	require.NoError(t, <-fetched)
	longAgo := func() {
		s.mu.Lock()
		s.state.beganAt = s.state.beganAt.Add(-askEvery)
		s.mu.Unlock()
	}
	_, err := s.Find(t.Context(), "second")
	require.ErrorIs(t, err, ErrUnknown)
	a.set(t, second)
	longAgo()
	keys, err := s.Find(t.Context(), "second")
	require.NoError(t, err)
	assert.Equal(t, second.Key, keys[0].Key)
	require.NoError(t, <-fetched)
	_, err = s.Find(t.Context(), "first")
	require.ErrorIs(t, err, ErrUnknown, "it was withdrawn")

	a.isDown.Store(true)
	longAgo()
	_, err = s.Find(t.Context(), "third")
	require.ErrorIs(t, err, ErrUnknown)
	require.Error(t, <-fetched)
	_, err = s.Find(t.Context(), "second")
	require.NoError(t, err, "the issuer is down")
	require.Error(t, <-fetched, "it is asked again by itself")
	s.mu.Lock()
	s.state.fetchedAt = s.state.fetchedAt.Add(-KeepFor - time.Minute)
	s.mu.Unlock()
	_, err = s.Find(t.Context(), "second")
	require.ErrorIs(t, err, ErrAway, "for too long")
	a.isDown.Store(false)
	for err = range fetched {
		if err == nil {
			break
		}
	}
	_, err = s.Find(t.Context(), "second")
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(logs.String(), "keys not fetched"), "once for an outage: %s", logs)
	assert.Contains(t, logs.String(), "keys fetched again")
}

// TestHangingIssuer: a call waits for an issuer that does not answer no longer than it has to, and only some do.
func TestHangingIssuer(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hung) })
	s, _, _ := source(t, Config{Issuer: server.URL})
	var calls sync.WaitGroup
	var away atomic.Int64
	for range 2 * mostWaiting {
		calls.Go(func() {
			if _, err := s.Find(t.Context(), "a"); errors.Is(err, ErrAway) {
				away.Add(1)
			}
		})
	}
	calls.Wait()
	assert.EqualValues(t, 2*mostWaiting, away.Load())
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, err := parse(content)
		if err == nil && len(keys) == 0 {
			t.Fatal("no key and no error")
		}
	})
}
