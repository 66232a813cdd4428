package tlsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// TrustError is a connection that came to nothing since one side does not trust the
// other. Its text says in one line what to do.
type TrustError struct {
	cause  error
	advice string
}

func (e *TrustError) Error() string { return e.cause.Error() + "; " + e.advice }
func (e *TrustError) Unwrap() error { return e.cause }

// IsTrust reports whether an error is, or wraps, a [TrustError].
func IsTrust(err error) bool {
	_, ok := errors.AsType[*TrustError](err)
	return ok
}

// Client does the handshake on conn with the server at host, with the files as they
// are now, and offers the protocols (ALPN). It leaves conn open if it fails; the error is a [TrustError], or that
// of the network.
func (f Files) Client(ctx context.Context, conn net.Conn, host string, protocols ...string) (*Conn, error) {
	config, err := f.Config()
	if err != nil {
		return nil, &TrustError{err, "correct the file, which is read at each connect"}
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = protocols
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, f.Explain(fmt.Errorf("tls handshake: %w", err))
	}
	return &Conn{Conn: secured, files: f}, nil
}

// Conn is a connection under TLS. Under TLS 1.3 the server judges our certificate
// after our handshake: then the first Read or Write fails, with what [Files.Explain]
// makes of it.
type Conn struct {
	*tls.Conn
	files     Files
	isTrusted atomic.Bool // the server has said something, so it trusts us
	refusal   atomic.Pointer[error]
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.isTrusted.Store(true)
	}
	return n, c.explain(err)
}

// Write implements [net.Conn]. A server that refuses us may reset the connection
// before we have read why.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *Conn) explain(err error) error {
	if err == nil || c.isTrusted.Load() {
		return err
	}
	if err = c.files.Explain(err); IsTrust(err) {
		err = fmt.Errorf("first exchange: %w", err) // go-redis takes one layer off.
		c.refusal.Store(&err)
	}
	return err
}

// Refusal is why the server refused us after the handshake; nil if it did not. It
// is for drivers that hide the errors of Read.
func (c *Conn) Refusal() error {
	if c == nil {
		return nil
	}
	if err := c.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Explain makes a [TrustError] of what a connect has failed with, if that is a
// matter of trust; other errors, and nil, stay as they are. Some servers end the
// connection without a word, so a certificate of ours that has ended is reason enough.
func (f Files) Explain(err error) error {
	if err == nil || IsTrust(err) {
		return err
	}
	advice := f.advice(err)
	if timeout, ok := errors.AsType[net.Error](err); advice == "" && (!ok || !timeout.Timeout()) {
		advice = f.ended()
	}
	if advice == "" {
		return err
	}
	return &TrustError{err, advice}
}

func (f Files) advice(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "renew the server's certificate"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "give the CA that signed the server's certificate in ca_file"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "connect by a name that the server's certificate has, or give it as server_name"
	}
	// This is how crypto/tls names an alert of the other side.
	if alert, ok := errors.AsType[*net.OpError](err); !ok || alert.Op != "remote error" {
		return ""
	}
	if advice := f.ended(); advice != "" {
		return advice
	}
	if f.CertFile == "" {
		return "the server may ask for a certificate: give cert_file and key_file"
	}
	return "let the server trust the CA that signed the certificate in cert_file, or replace it"
}

// ended is the advice where our own certificate has ended, else empty.
func (f Files) ended() string {
	if f.CertFile == "" {
		return ""
	}
	pair, err := f.certificate(nil)
	if err != nil || pair.Leaf == nil || time.Now().Before(pair.Leaf.NotAfter) {
		return ""
	}
	return fmt.Sprintf("our certificate %s expired on %s: renew it", f.CertFile, pair.Leaf.NotAfter.UTC().Format(time.DateTime))
}
