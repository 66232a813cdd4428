// Package tlsserver makes the TLS configuration of a listener from the files that
// an operator names. Files that change are read again.
package tlsserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Files says how to identify ourselves, and which clients may connect.
type Files struct {
	CertFile string `yaml:"cert_file" required:"true" file:"true" doc:"The listener's certificate, and those between it and its root. It is read at each connect."`
	KeyFile  string `yaml:"key_file" required:"true" file:"true" doc:"The certificate's key. It is read at each connect."`
	// ClientCAFile, if not empty, makes a client certificate a must, unless ClientCerts is optional.
	ClientCAFile string `yaml:"client_ca_file" file:"true" doc:"The roots of the clients' certificates. Where it is given, nobody connects without one, unless client_certs is optional."`
	ClientCerts  string `yaml:"client_certs" default:"required" enum:"required,optional" doc:"optional: a client without a certificate connects, too; what it may do is for admin.auth to say. It needs client_ca_file."`
}

const optional = "optional"

// Config reads the files and returns a configuration for TLS 1.2 or later. The files
// are read again at each handshake; where they do not fit together, as in the middle
// of a rotation, what was read before is used.
func (f Files) Config() (*tls.Config, error) {
	last, err := f.load()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			if now, err := f.load(); err == nil {
				last = now
			}
			return last, nil
		},
	}, nil
}

func (f Files) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCAFile == "" {
		if f.ClientCerts == optional {
			return nil, errors.New("client_certs: optional needs client_ca_file")
		}
		return config, nil
	}
	pem, err := os.ReadFile(f.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read client_ca_file: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if f.ClientCerts == optional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client_ca_file %s: no certificate found", f.ClientCAFile)
	}
	return config, nil
}
