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

	authority *cert
}

// NewCerts makes fresh certificates of a new authority in a folder of the test.
func NewCerts(t testing.TB) Certs {
	t.Helper()
	ca := newCert(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "delaybridge test authority"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
	return sign(t, ca, time.Now().Add(24*time.Hour))
}

// Renewed are certificates of the same authority.
func (c Certs) Renewed(t testing.TB) Certs {
	t.Helper()
	return sign(t, c.authority, time.Now().Add(24*time.Hour))
}

// Ending are certificates of the same authority that end so soon; a negative time is
// for those that have ended.
func (c Certs) Ending(t testing.TB, in time.Duration) Certs {
	t.Helper()
	return sign(t, c.authority, time.Now().Add(in))
}

// Install replaces the files by those of other, as who rotates certificates does;
// whoever reads them again gets the new ones.
func (c *Certs) Install(t testing.TB, other Certs) {
	t.Helper()
	for from, to := range map[string]string{
		other.CAFile: c.CAFile, other.ServerCert: c.ServerCert, other.ServerKey: c.ServerKey,
		other.ClientCert: c.ClientCert, other.ClientKey: c.ClientKey,
	} {
		content, err := os.ReadFile(from)
		fatal(t, err)
		fatal(t, os.WriteFile(to, content, 0o600)) // A file that exists keeps its owner and mode.
	}
	c.authority = other.authority
}

// sign makes a server's and a client's certificate that are good until notAfter.
func sign(t testing.TB, ca *cert, notAfter time.Time) Certs {
	t.Helper()
	dir := t.TempDir()
	server := newCert(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: notAfter,
		// Brokers use theirs as clients, too, to speak to each other.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca)
	client := newCert(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "delaybridge"},
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca)

	files := Certs{authority: ca}
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
// that is nil. Without an end of its own it is good for a day.
func newCert(t testing.TB, template *x509.Certificate, authority *cert) *cert {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	fatal(t, err)
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
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
