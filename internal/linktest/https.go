package linktest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
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
	var server *httptest.Server
	start := func(t *testing.T) {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(l.Certs.ServerCert, l.Certs.ServerKey)
		require.NoError(t, err)
		authority, err := os.ReadFile(l.Certs.CAFile)
		require.NoError(t, err)
		server = httptest.NewUnstartedServer(handler(l.Password))
		require.NoError(t, server.Listener.Close())
		server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		require.NoError(t, err)
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert,
		}
		require.True(t, server.TLS.ClientCAs.AppendCertsFromPEM(authority))
		server.StartTLS()
	}
	start(t)
	t.Cleanup(func() { server.Close() })
	l.Restart = func(t *testing.T) {
		t.Helper()
		server.Close()
		start(t)
	}
	return "https://" + address
}
