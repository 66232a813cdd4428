package kafka

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// TestLink logs in by PLAIN where a certificate is demanded, too. Kafka does not start
// with a certificate that has ended, so here it ends while the broker runs: after several times
// as long as this machine takes to start one.
func TestLink(t *testing.T) {
	t.Parallel()
	l, began := &linktest.Link{Certs: testenv.NewCerts(t), Password: testPassword}, time.Now()
	server := testenv.StartKafka(t, tlsProperties(t, l.Certs))
	l.Ends = min(90*time.Second, max(20*time.Second, 4*time.Since(began)))
	l.Restart = func(t *testing.T) {
		t.Helper()
		server.Kill()
		text, err := os.ReadFile(filepath.Join(server.Dir(), "server.properties"))
		require.NoError(t, err)
		properties := strings.ReplaceAll(tlsProperties(t, l.Certs), testPassword, l.Password)
		server.Own("server.properties", append(text, properties...)) // The last of two equal keys wins.
		server.Start()
	}
	files := tlsclient.Files{CAFile: l.Certs.CAFile, CertFile: l.Certs.ClientCert, KeyFile: l.Certs.ClientKey}
	broker := &testBroker{config: Config{
		Brokers: []string{server.Addr()}, TLS: &files,
		SASL: &SASL{Mechanism: "plain", Username: testUser, Password: secret.Value(testPassword)},
	}}
	topic := testenv.Name(t, "topic")
	broker.MakeTopic(t, topic, sinktest.TopicOptions{})
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		sink := newSink(t, Config{
			Brokers: []string{server.Addr()}, TLS: login.TLS,
			SASL: &SASL{Mechanism: "plain", Username: testUser, Password: login.Secret},
		})
		return func(ctx context.Context) error { return tryPublish(ctx, t, sink, topic) }
	}
	l.Run(t)
}

// tryPublish publishes a message and opens a connection, since one that is open stays so
// when a certificate ends. What cannot be sent must wait, and for no reason of its own.
func tryPublish(ctx context.Context, t *testing.T, sink *Sink, topic string) error {
	t.Helper()
	if err := linktest.Publish(ctx, t, sink, newMessage(t, topic, "")); err != nil {
		return err
	}
	return sink.Ping(ctx)
}

// bearerProperties add OAUTHBEARER to the logins, with Kafka's own validator of tokens
// that nobody has signed.
const bearerProperties = `
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.plaintext.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
`

// unsigned is such a token for the test user.
func unsigned(until time.Time) string {
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return encode(`{"alg":"none"}`) + "." +
		encode(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, testUser, until.Add(-time.Hour).Unix(), until.Unix())) + "."
}

// rotatedLogins has each mechanism refused with what is wrong or has ended, hold its messages, and
// work with what its file has next.
func rotatedLogins(t *testing.T, config Config, topic string) {
	t.Helper()
	token := unsigned(time.Now().Add(30 * time.Minute))
	for mechanism, c := range map[string]struct {
		right string
		wrong []string
	}{
		"plain":         {testPassword, []string{"wrong"}},
		"scram-sha-256": {testPassword, []string{"wrong"}},
		"scram-sha-512": {testPassword, []string{"wrong"}},
		"oauthbearer":   {token, []string{"", "no token", "wrong", unsigned(time.Now().Add(-time.Minute))}},
	} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			config, file := config, filepath.Join(t.TempDir(), "secret")
			config.SASL = &SASL{Mechanism: mechanism, Username: testUser, Password: secret.File(file)}
			if mechanism == oauthBearer {
				config.SASL = &SASL{Mechanism: mechanism, Token: secret.File(file)}
			}
			sink := newSink(t, config)
			for _, wrong := range c.wrong {
				require.NoError(t, os.WriteFile(file, []byte(wrong+"\n"), 0o600))
				var outcomes []sinks.Outcome
				require.Eventually(t, func() bool { // On a busy machine a login takes longer than it may.
					outcomes = publish(t, sink, newMessage(t, topic, ""))
					return outcomes[0].Reason != sinks.ReasonTimeout
				}, patience, 20*time.Millisecond)
				requireClass(t, outcomes, sinks.Unavailable, sinks.ReasonAuth)
				require.Error(t, sink.Ping(t.Context()))
			}
			require.NoError(t, os.WriteFile(file, []byte(c.right+"\n"), 0o600))
			require.Eventually(t, func() bool {
				return publish(t, sink, newMessage(t, topic, ""))[0].Class == sinks.Acknowledged
			}, patience, 20*time.Millisecond)
			awaitPing(t, sink)
			require.NoError(t, os.Remove(file))
			require.Error(t, sink.Ping(t.Context()))
		})
	}
}
