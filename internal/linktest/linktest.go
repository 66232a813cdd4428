// Package linktest tries one link of the bridge, against its real server, in the ways
// in which its security can be right, wrong, at its end, or changed under it.
//
// A test describes the link by a [Link] and runs it. The cases are the columns of
// docs/security-matrix.md. No client is made anew in a case: what is corrected must
// work without a restart.
//
// Only tests import this package.
package linktest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// patience is how long a server may take to come back, and a client to notice.
	patience = 3 * time.Minute
	interval = 50 * time.Millisecond
)

// Login is what a client of the link is given.
type Login struct {
	// TLS is nil for a client without TLS.
	TLS *tlsclient.Files
	// Secret is read by the client at each connect. It is what Link.Secret makes of a
	// password.
	Secret secret.Secret
}

// Try uses the link once; nil says that it works.
type Try func(ctx context.Context) error

// Publish tries a sink's link by a message. One that the server does not take must wait, and for no
// reason of its own.
func Publish(ctx context.Context, t *testing.T, sink sinks.Sink, m message.Message) error {
	t.Helper()
	outcome := sinks.Publish(ctx, sink, []message.Message{m})[0]
	switch outcome.Class {
	case sinks.Acknowledged:
		return nil
	case sinks.Permanent, sinks.Retryable:
		t.Errorf("%s %s: %v", outcome.Class, outcome.Reason, outcome.Err)
	case sinks.Unavailable, sinks.Unknown:
	}
	return errors.Join(errNotPublished, outcome.Err)
}

var errNotPublished = errors.New("not published")

// Link is one link with a server of its own, which demands TLS, a certificate of its
// authority and, where Password is set, that password.
type Link struct {
	// Certs are the server's.
	Certs testenv.Certs
	// Password is the server's; empty if the certificate is the login.
	Password string
	// Secret makes of a password what the client's file holds; nil: the password.
	Secret func(password string) string
	// Open makes a client that lives until the test ends.
	Open func(t *testing.T, login Login) Try
	// Restart stops the server and starts it with what is in Certs and Password then.
	Restart func(t *testing.T)
	// Ends is how long the server's certificate lasts in the case where it ends; zero
	// where the server starts with one that has ended.
	Ends time.Duration
}

// Run runs all cases, one after the other, since they change the server.
func (l *Link) Run(t *testing.T) {
	t.Run("ok", func(t *testing.T) { works(t, l.Open(t, l.login(t, l.files(t)))) })
	t.Run("wrong", l.wrong)
	t.Run("expired", l.expired)
	t.Run("rotated", l.rotated)
}

// files are the client's own copies of the certificates.
func (l *Link) files(t *testing.T) *testenv.Certs {
	t.Helper()
	mine := testenv.NewCerts(t)
	mine.Install(t, l.Certs)
	return &mine
}

func (l *Link) login(t *testing.T, mine *testenv.Certs) Login {
	t.Helper()
	return Login{TLS: client(mine), Secret: l.secret(t, l.Password)}
}

func client(certs *testenv.Certs) *tlsclient.Files {
	return &tlsclient.Files{CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey}
}

// secret is a file with a password.
func (l *Link) secret(t *testing.T, password string) secret.Secret {
	t.Helper()
	if l.Password == "" {
		return secret.Secret{}
	}
	file := filepath.Join(t.TempDir(), "secret")
	l.write(t, file, password)
	return secret.File(file)
}

func (l *Link) write(t *testing.T, file, password string) {
	t.Helper()
	if l.Secret != nil {
		password = l.Secret(password)
	}
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
}

// wrong are clients that must not get in, each with what its error says.
func (l *Link) wrong(t *testing.T) {
	other := testenv.NewCerts(t)
	for name, c := range map[string]struct {
		spoil func(*Login)
		says  string
	}{
		"plain":               {func(given *Login) { given.TLS = nil }, ""},
		"no_certificate":      {func(given *Login) { given.TLS.CertFile, given.TLS.KeyFile = "", "" }, ""},
		"unknown_certificate": {func(given *Login) { given.TLS.CertFile, given.TLS.KeyFile = other.ClientCert, other.ClientKey }, ""},
		"unknown_authority":   {func(given *Login) { given.TLS.CAFile = other.CAFile }, "give the CA that signed the server's certificate in ca_file"},
		"wrong_name":          {func(given *Login) { given.TLS.ServerName = "elsewhere.example" }, "or give it as server_name"},
		"wrong_password":      {func(given *Login) { given.Secret = l.secret(t, "not-the-password") }, ""},
	} {
		if name == "wrong_password" && l.Password == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			given := l.login(t, l.files(t))
			c.spoil(&given)
			try := l.Open(t, given)
			for range 3 { // A client must neither give up nor hide the reason after the first time.
				l.refused(t, answer(t, try, c.says), c.says)
			}
		})
	}
}

// expired are certificates that have ended, ours and the server's, and are renewed.
func (l *Link) expired(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		mine := l.files(t)
		mine.Install(t, mine.Ending(t, -time.Minute))
		try := l.Open(t, l.login(t, mine))
		l.refused(t, try(soon(t)), "expired on")
		mine.Install(t, mine.Renewed(t))
		works(t, try)
	})
	t.Run("server", func(t *testing.T) {
		try := l.Open(t, l.login(t, l.files(t)))
		works(t, try)
		ends := l.Ends
		if ends == 0 {
			ends = -time.Minute
		}
		l.Certs.Install(t, l.Certs.Ending(t, ends))
		l.Restart(t)
		l.becomes(t, try, "renew the server's certificate")
		l.Certs.Install(t, l.Certs.Renewed(t))
		l.Restart(t)
		works(t, try)
	})
}

// rotated: the server gets another authority, and another password, so that it revokes
// what the client has; the client works again when its files are replaced.
func (l *Link) rotated(t *testing.T) {
	mine := l.files(t)
	given := l.login(t, mine)
	file := filepath.Join(t.TempDir(), "secret")
	if l.Password != "" {
		l.write(t, file, l.Password)
		given.Secret = secret.File(file)
	}
	try := l.Open(t, given)
	works(t, try)
	l.Certs.Install(t, testenv.NewCerts(t))
	if l.Password != "" {
		l.Password += "-2"
	}
	l.Restart(t)
	l.becomes(t, try, "give the CA that signed the server's certificate in ca_file")
	mine.Install(t, l.Certs)
	if l.Password == "" {
		works(t, try)
		return
	}
	err := try(soon(t))
	require.Error(t, err, "the old password")
	l.write(t, file, l.Password)
	works(t, try)
}

// works waits until the link works.
func works(t *testing.T, try Try) {
	t.Helper()
	var err error
	if !assert.Eventually(t, func() bool {
		err = try(soon(t))
		return err == nil
	}, patience, interval, "the link must work, by itself") {
		t.Fatal(err)
	}
}

// refused checks the error of a link that must not work: it says what to do, and no
// password.
func (l *Link) refused(t *testing.T, err error, says string) {
	t.Helper()
	require.Error(t, err)
	t.Log(err)
	require.ErrorContains(t, err, says)
	if l.Password != "" {
		require.NotContains(t, err.Error(), l.Password)
	}
}

// answer is the error of a try; of another one where the client's own limit came before what the
// server would have told, as on a busy machine.
func answer(t *testing.T, try Try, says string) (err error) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		if err = try(soon(t)); says == "" || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), says) {
			break
		}
	}
	return err
}

// becomes waits until the link, whose server was changed, is refused for that reason.
func (l *Link) becomes(t *testing.T, try Try, says string) {
	t.Helper()
	var err error
	if !assert.Eventually(t, func() bool {
		err = try(soon(t))
		return err != nil && strings.Contains(err.Error(), says)
	}, patience, interval, "the link must be refused: %s", says) {
		t.Fatal(err)
	}
	l.refused(t, err, says)
}

// soon is the context of one try.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
