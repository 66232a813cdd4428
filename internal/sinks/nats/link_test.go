package nats_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
)

// TestLink runs a server that demands a certificate and a password.
func TestLink(t *testing.T) {
	t.Parallel()
	l := &linktest.Link{Certs: testenv.NewCerts(t), Password: "correct-horse"}
	config := func() string {
		return fmt.Sprintf(`tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }
			authorization { user: %q, password: %q }`, l.Certs.ServerCert, l.Certs.ServerKey, l.Certs.CAFile, user, l.Password)
	}
	was := config()
	server := testenv.StartNATS(t, was)
	l.Restart = func(t *testing.T) {
		t.Helper()
		server.Stop()
		file := filepath.Join(server.Dir(), "nats.conf")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		server.Own("nats.conf", []byte(strings.Replace(string(text), was, config(), 1)))
		was = config()
		server.Start()
	}
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		sink := newSink(t, nats.Config{URL: server.URL(), User: user, Password: login.Secret, TLS: login.TLS})
		topic := testenv.Name(t, "topic")
		return func(ctx context.Context) error { return tryPublish(ctx, t, sink, topic) }
	}
	l.Run(t)
}

// tryPublish publishes a message. The server has no stream for it, so that the link
// works where JetStream says just that. What cannot be sent must wait, and for no reason
// of its own.
func tryPublish(ctx context.Context, t *testing.T, sink *nats.Sink, topic string) error {
	t.Helper()
	outcome := sinks.Publish(ctx, sink, []message.Message{newMessage(t, topic)})[0]
	switch {
	case outcome.Reason == sinks.ReasonTopicMissing:
		return nil
	case outcome.Class == sinks.Permanent, outcome.Class == sinks.Retryable:
		t.Errorf("%s %s: %v", outcome.Class, outcome.Reason, outcome.Err)
	}
	return errors.Join(errNotPublished, outcome.Err)
}

var errNotPublished = errors.New("not published")

// operatorServer is a server that believes an operator's signed tokens.
type operatorServer struct {
	t                 *testing.T
	operator, account nkeys.KeyPair
	accountID, system string // and the system account's token
	systemID          string
	server            *testenv.Server
	config            string
}

func startOperated(t *testing.T) *operatorServer {
	t.Helper()
	o := &operatorServer{t: t}
	var operatorID string
	o.operator, operatorID = pair(t, nkeys.CreateOperator)
	o.account, o.accountID = pair(t, nkeys.CreateAccount)
	_, o.systemID = pair(t, nkeys.CreateAccount)
	token, err := jwt.NewOperatorClaims(operatorID).Encode(o.operator)
	require.NoError(t, err)
	o.system, err = jwt.NewAccountClaims(o.systemID).Encode(o.operator)
	require.NoError(t, err)
	o.config = fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\n", token, o.systemID)
	o.server = testenv.StartNATS(t, o.config+o.accounts())
	return o
}

// accounts is the line that preloads the accounts, with the users that are revoked.
func (o *operatorServer) accounts(revoked ...string) string {
	o.t.Helper()
	claims := jwt.NewAccountClaims(o.accountID)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: 1 << 20, Streams: 1}
	for _, user := range revoked {
		claims.Revoke(user)
	}
	token, err := claims.Encode(o.operator)
	require.NoError(o.t, err)
	return fmt.Sprintf("resolver_preload: {%s: %s, %s: %s}\n", o.systemID, o.system, o.accountID, token)
}

// credentials are those of a new user, who is known until then; zero is for ever.
func (o *operatorServer) credentials(until time.Time) (user string, content []byte) {
	o.t.Helper()
	keys, user := pair(o.t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(user)
	if !until.IsZero() {
		claims.Expires = until.Unix()
	}
	token, err := claims.Encode(o.account)
	require.NoError(o.t, err)
	seed, err := keys.Seed()
	require.NoError(o.t, err)
	content, err = jwt.FormatUserConfig(token, seed)
	require.NoError(o.t, err)
	return user, content
}

// TestCredentialsEnd: a sink whose credentials are wrong, end while it is connected, or
// are revoked, holds its messages, and goes on when the file has others.
func TestCredentialsEnd(t *testing.T) {
	t.Parallel()
	o, stranger := startOperated(t), startOperated(t)
	file := filepath.Join(t.TempDir(), "bridge.creds")
	write := func(content []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, content, 0o600))
	}
	_, unknown := stranger.credentials(time.Time{})
	write(unknown)
	sink := newSink(t, nats.Config{URL: o.server.URL(), CredsFile: file})
	refused := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			outcome := publish(t, sink, newMessage(t, "orders"))[0]
			return outcome.Class == sinks.Unavailable && outcome.Reason == sinks.ReasonAuth
		}, 2*time.Minute, 20*time.Millisecond)
	}
	works := func() {
		t.Helper()
		require.Eventually(t, func() bool { return sink.Ping(t.Context()) == nil }, 2*time.Minute, 20*time.Millisecond)
	}
	refused()

	_, short := o.credentials(time.Now().Add(15 * time.Second))
	write(short)
	works()
	refused() // The server ends the connection when the token ends.
	user, content := o.credentials(time.Time{})
	write(content)
	works()

	o.server.Stop()
	text, err := os.ReadFile(filepath.Join(o.server.Dir(), "nats.conf"))
	require.NoError(t, err)
	before, _, found := strings.Cut(string(text), "resolver_preload")
	require.True(t, found)
	o.server.Own("nats.conf", []byte(before+o.accounts(user)))
	o.server.Start()
	refused()
	_, content = o.credentials(time.Time{})
	write(content)
	works()
}

// TestNKeyIsReplaced: the server forgets a key and learns another.
func TestNKeyIsReplaced(t *testing.T) {
	t.Parallel()
	seedOf := func() (public string, seed []byte) {
		keys, public := pair(t, nkeys.CreateUser)
		seed, err := keys.Seed()
		require.NoError(t, err)
		return public, seed
	}
	old, oldSeed := seedOf()
	next, nextSeed := seedOf()
	server := testenv.StartNATS(t, `authorization { users: [{nkey: `+old+`}] }`)
	file := filepath.Join(t.TempDir(), "user.nk")
	require.NoError(t, os.WriteFile(file, nextSeed, 0o600))
	sink := newSink(t, nats.Config{URL: server.URL(), NKeyFile: file})
	requireOutcome(t, publish(t, sink, newMessage(t, "x"))[0], sinks.Unavailable, sinks.ReasonAuth)
	require.NoError(t, os.WriteFile(file, oldSeed, 0o600))
	require.NoError(t, sink.Ping(t.Context()))

	server.Stop()
	text, err := os.ReadFile(filepath.Join(server.Dir(), "nats.conf"))
	require.NoError(t, err)
	server.Own("nats.conf", []byte(strings.Replace(string(text), old, next, 1)))
	server.Start()
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, "x"))[0].Reason == sinks.ReasonAuth
	}, 2*time.Minute, 20*time.Millisecond)
	require.NoError(t, os.WriteFile(file, nextSeed, 0o600))
	require.Eventually(t, func() bool { return sink.Ping(t.Context()) == nil }, 2*time.Minute, 20*time.Millisecond)
}
