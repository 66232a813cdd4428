package linktest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// ServeHTTPS starts the server of a link that speaks HTTP, and sets Restart. Each start asks for
// the handler, which demands the password of then.
func (l *Link) ServeHTTPS(t *testing.T, handler func(password string) http.Handler) (url string) {
	t.Helper()
	address := "127.0.0.1:" + testenv.Port(t)
	server := startHTTPS(t, l.Certs, address, true, handler(l.Password))
	t.Cleanup(func() { server.Close() })
	l.Restart = func(t *testing.T) {
		t.Helper()
		server.Close()
		server = startHTTPS(t, l.Certs, address, true, handler(l.Password))
	}
	return server.URL
}

// NewHTTPS starts a server of HTTP with these certificates, which may demand one of the client, until the test ends.
func NewHTTPS(t testing.TB, certs testenv.Certs, demandsCertificate bool, handler http.Handler) *httptest.Server {
	t.Helper()
	server := startHTTPS(t, certs, "127.0.0.1:0", demandsCertificate, handler)
	t.Cleanup(server.Close)
	return server
}

// startHTTPS starts one whose end is the caller's.
func startHTTPS(t testing.TB, certs testenv.Certs, address string, demandsCertificate bool, handler http.Handler) *httptest.Server {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certs.ServerCert, certs.ServerKey)
	require.NoError(t, err)
	server := &httptest.Server{Listener: testenv.Listen(t, address), Config: &http.Server{Handler: handler, ReadHeaderTimeout: patience}, EnableHTTP2: true}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if demandsCertificate {
		authority, err := os.ReadFile(certs.CAFile)
		require.NoError(t, err)
		server.TLS.ClientCAs, server.TLS.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		require.True(t, server.TLS.ClientCAs.AppendCertsFromPEM(authority))
	}
	server.StartTLS()
	return server
}
