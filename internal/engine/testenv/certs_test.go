package testenv_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestCertsWorkBothWays(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	authority, err := os.ReadFile(certs.CAFile)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	server, err := tls.LoadX509KeyPair(certs.ServerCert, certs.ServerKey)
	require.NoError(t, err)
	client, err := tls.LoadX509KeyPair(certs.ClientCert, certs.ClientKey)
	require.NoError(t, err)

	for _, name := range []string{"127.0.0.1", "localhost"} {
		near, far := net.Pipe()
		serverSide := tls.Server(far, &tls.Config{
			Certificates: []tls.Certificate{server}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		})
		done := make(chan error, 1)
		go func() { done <- serverSide.HandshakeContext(t.Context()) }()
		clientSide := tls.Client(near, &tls.Config{
			Certificates: []tls.Certificate{client}, RootCAs: roots, ServerName: name,
			MaxVersion: tls.VersionTLS12, // its handshake ends when both agree
		})
		require.NoError(t, clientSide.HandshakeContext(t.Context()))
		require.NoError(t, <-done)
		require.Equal(t, "delaybridge", serverSide.ConnectionState().PeerCertificates[0].Subject.CommonName)
		_, _ = near.Close(), far.Close()
	}
}
