package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are PEM files of one test: an authority, a server certificate that it
// signed for 127.0.0.1 and localhost, and a client certificate with the common
// name delaybridge. The keys are PKCS #8, which all the brokers read.
type Certs struct {
	CAFile, ServerCert, ServerKey, ClientCert, ClientKey string
}

// NewCerts makes fresh certificates in a folder of the test.
func NewCerts(t testing.TB) Certs {
	t.Helper()
	dir := t.TempDir()
	ca := newCert(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "delaybridge test authority"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
	server := newCert(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature,
		// Brokers use theirs as clients, too, to speak to each other.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca)
	client := newCert(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "delaybridge"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca)

	var files Certs
	files.CAFile, _ = ca.write(t, dir, "ca")
	files.ServerCert, files.ServerKey = server.write(t, dir, "server")
	files.ClientCert, files.ClientKey = client.write(t, dir, "client")
	return files
}

type cert struct {
	parsed *x509.Certificate
	key    *ecdsa.PrivateKey
}

// newCert signs the template with the authority, or with its own key where
// that is nil.
func newCert(t testing.TB, template *x509.Certificate, authority *cert) *cert {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	fatal(t, err)
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	issuer := &cert{parsed: template, key: key}
	if authority != nil {
		issuer = authority
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.parsed, &key.PublicKey, issuer.key)
	fatal(t, err)
	parsed, err := x509.ParseCertificate(der)
	fatal(t, err)
	return &cert{parsed: parsed, key: key}
}

func (c *cert) write(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	fatal(t, err)
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	fatal(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.parsed.Raw}), 0o644))
	fatal(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return certFile, keyFile
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
