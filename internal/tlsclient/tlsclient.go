// Package tlsclient makes TLS configurations for our connections to Redis and
// to the brokers from the files that an operator names.
package tlsclient

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files says how to verify a server and how to identify ourselves. The zero
// value verifies against the system's roots.
type Files struct {
	CAFile             string `yaml:"ca_file,omitempty"`
	CertFile           string `yaml:"cert_file,omitempty"`
	KeyFile            string `yaml:"key_file,omitempty"`
	ServerName         string `yaml:"server_name,omitempty"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify,omitempty"`
}

// Config reads the files and returns a new configuration for TLS 1.2 or later. It
// is for one connect, or a few: certificates of servers are verified against the CA
// file as it is now. Our own certificate is read again at each handshake.
func (f Files) Config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         f.ServerName,
		InsecureSkipVerify: f.InsecureSkipVerify, //nolint:gosec // the operator asked for it by name
	}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s: no certificate found", f.CAFile)
		}
	}
	if (f.CertFile == "") != (f.KeyFile == "") {
		return nil, fmt.Errorf("cert_file %q, key_file %q: give both or neither", f.CertFile, f.KeyFile)
	}
	if f.CertFile != "" {
		if _, err := f.certificate(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = f.certificate
	}
	return config, nil
}

func (f Files) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load client certificate: %w", err)
	}
	return &pair, nil
}
