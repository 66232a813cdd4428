package tlsclient_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handshake speaks TLS with a server that has the test's certificates, and
// returns the client's error and the name that the server saw.
func handshake(t *testing.T, certs testenv.Certs, serverVersion uint16, wantsClient bool, files tlsclient.Files) (string, error) {
	t.Helper()
	config, err := files.Config()
	require.NoError(t, err)
	if config.ServerName == "" {
		config.ServerName = "localhost" // As a dialler does with the host that it dials.
	}
	pair, err := tls.LoadX509KeyPair(certs.ServerCert, certs.ServerKey)
	require.NoError(t, err)
	pem, err := os.ReadFile(certs.CAFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, MaxVersion: serverVersion}
	if wantsClient {
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	type outcome struct {
		name string
		err  error
	}
	accepted := make(chan outcome, 1)
	go func() {
		name, err := accept(t, listener, server)
		accepted <- outcome{name, err}
	}()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	client := tls.Client(conn, config)
	if err = client.HandshakeContext(t.Context()); err != nil {
		_ = conn.Close()
	}
	// Under TLS 1.3 the server judges the client's certificate afterwards.
	got := <-accepted
	if err == nil {
		err = got.err
	}
	return got.name, err
}

const soon = 20 * time.Second

// accept is the server's side of one handshake.
func accept(t *testing.T, listener net.Listener, config *tls.Config) (string, error) {
	conn, err := listener.Accept()
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		return "", err
	}
	server := tls.Server(conn, config)
	if err := server.HandshakeContext(t.Context()); err != nil {
		return "", err
	}
	if peers := server.ConnectionState().PeerCertificates; len(peers) > 0 {
		return peers[0].Subject.CommonName, nil
	}
	return "", nil
}

func TestVerifiesServer(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	_, err := handshake(t, certs, tls.VersionTLS13, false, tlsclient.Files{CAFile: certs.CAFile})
	require.NoError(t, err)
	_, err = handshake(t, certs, tls.VersionTLS12, false, tlsclient.Files{CAFile: certs.CAFile})
	require.NoError(t, err)
	_, err = handshake(t, certs, tls.VersionTLS11, false, tlsclient.Files{CAFile: certs.CAFile})
	require.Error(t, err, "TLS 1.2 or later")
	_, err = handshake(t, certs, tls.VersionTLS13, false, tlsclient.Files{})
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError), "the system's roots do not know it")
	_, err = handshake(t, certs, tls.VersionTLS13, false, tlsclient.Files{CAFile: certs.CAFile, ServerName: "example.org"})
	require.ErrorAs(t, err, new(x509.HostnameError))
	_, err = handshake(t, certs, tls.VersionTLS13, false, tlsclient.Files{InsecureSkipVerify: true})
	require.NoError(t, err)
}

// TestClientCertificate is read at each handshake.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	files := tlsclient.Files{CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey}
	name, err := handshake(t, certs, tls.VersionTLS13, true, files)
	require.NoError(t, err)
	require.Equal(t, "delaybridge", name)
	_, err = handshake(t, certs, tls.VersionTLS12, true, tlsclient.Files{CAFile: certs.CAFile})
	require.Error(t, err, "the server asks for one")

	// Rotated while the configuration is in use.
	config, err := files.Config()
	require.NoError(t, err)
	first, err := config.GetClientCertificate(nil)
	require.NoError(t, err)
	rotated := testenv.NewCerts(t)
	copyFile(t, rotated.ClientCert, certs.ClientCert)
	copyFile(t, rotated.ClientKey, certs.ClientKey)
	second, err := config.GetClientCertificate(nil)
	require.NoError(t, err)
	require.NotEqual(t, first.Certificate, second.Certificate)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, files := range map[string]tlsclient.Files{
		"no such ca":       {CAFile: filepath.Join(t.TempDir(), "none")},
		"empty ca":         {CAFile: empty},
		"cert without key": {CertFile: certs.ClientCert},
		"key without cert": {KeyFile: certs.ClientKey},
		"empty cert":       {CertFile: empty, KeyFile: certs.ClientKey},
		"key of another":   {CertFile: certs.ClientCert, KeyFile: certs.ServerKey},
		"no such key":      {CertFile: certs.ClientCert, KeyFile: empty + "x"},
	} {
		_, err := files.Config()
		require.Error(t, err, name)
	}
	_, err := tlsclient.Files{CAFile: empty}.Config()
	require.ErrorContains(t, err, empty, "the file is named")
}
