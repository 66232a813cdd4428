package admin

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
	"github.com/delaybridge/delaybridge/internal/tlsserver"
)

// TestTLS: the main listener speaks TLS, and asks for a certificate where it knows the
// clients' roots; the probes stay as they are. Files that change count at once, and where
// they are broken, those before them.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	files := tlsserver.Files{CertFile: certs.ServerCert, KeyFile: certs.ServerKey, ClientCAFile: certs.CAFile}
	given := config()
	var err error
	given.TLS, err = files.Config()
	require.NoError(t, err)
	s := start(t, given)

	status := func(clientCert bool) (int, error) {
		ca, err := os.ReadFile(certs.CAFile)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		require.True(t, roots.AppendCertsFromPEM(ca))
		settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
		if clientCert {
			pair, err := tls.LoadX509KeyPair(certs.ClientCert, certs.ClientKey)
			require.NoError(t, err)
			settings.Certificates = []tls.Certificate{pair}
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+"/livez", nil)
		require.NoError(t, err)
		transport := &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	code, err := status(true)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code)
	_, err = status(false)
	require.Error(t, err, "without a certificate")
	plain, _ := get(t, http.MethodGet, s.ProbesAddr(), "/livez", "")
	assert.Equal(t, http.StatusOK, plain)

	key, err := os.ReadFile(certs.ServerKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(certs.ServerKey, []byte("half of it"), 0o600))
	_, err = files.Config()
	require.ErrorContains(t, err, "load certificate")
	_, err = status(true)
	require.NoError(t, err, "in the middle of a rotation")
	require.NoError(t, os.WriteFile(certs.ServerKey, key, 0o600))
	require.NoError(t, os.WriteFile(certs.CAFile+".none", nil, 0o600))
	_, err = tlsserver.Files{CertFile: certs.ServerCert, KeyFile: certs.ServerKey, ClientCAFile: certs.CAFile + ".none"}.Config()
	require.ErrorContains(t, err, "no certificate found")
}

// TestRotatedCertificates: a client whose certificate has ended, or whose authority is no
// longer trusted, is refused; what replaces the files counts at the next connect.
func TestRotatedCertificates(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	given := config()
	var err error
	given.TLS, err = tlsserver.Files{CertFile: certs.ServerCert, KeyFile: certs.ServerKey, ClientCAFile: certs.CAFile}.Config()
	require.NoError(t, err)
	s := start(t, given)
	ask := func(mine testenv.Certs) error {
		files := tlsclient.Files{CAFile: mine.CAFile, CertFile: mine.ClientCert, KeyFile: mine.ClientKey}
		config, err := files.Config()
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+"/livez", nil)
		require.NoError(t, err)
		response, err := (&http.Transport{TLSClientConfig: config, DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			return files.Explain(err)
		}
		return response.Body.Close()
	}
	mine := testenv.NewCerts(t)
	mine.Install(t, certs)
	require.NoError(t, ask(mine))
	require.ErrorContains(t, ask(certs.Ending(t, -time.Minute)), "expired on")

	next := testenv.NewCerts(t)
	certs.Install(t, next)
	require.ErrorContains(t, ask(mine), "in ca_file", "the listener has another authority")
	stranger := testenv.NewCerts(t)
	stranger.Install(t, next)
	stranger.ClientCert, stranger.ClientKey = mine.ClientCert, mine.ClientKey
	require.Error(t, ask(stranger), "a certificate of the authority before")
	mine.Install(t, next)
	require.NoError(t, ask(mine))
	certs.Install(t, next.Ending(t, -time.Minute))
	require.ErrorContains(t, ask(mine), "renew the server's certificate")
}
