package rabbitmq

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// definitions has a user for EXTERNAL logins and one who may publish to the
// topic exchange with certain topics only.
const definitions = `{
  "vhosts": [{"name": "/"}],
  "users": [
    {"name": "guest", "password": "guest", "tags": "administrator"},
    {"name": "delaybridge", "password": "unused", "tags": ""},
    {"name": "bound", "password": "bound", "tags": ""}
  ],
  "permissions": [
    {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "delaybridge", "vhost": "/", "configure": "", "write": ".*", "read": ""},
    {"user": "bound", "vhost": "/", "configure": "", "write": "^amq\\.topic$", "read": ""}
  ],
  "topic_permissions": [
    {"user": "bound", "vhost": "/", "exchange": "amq.topic", "write": "^allowed", "read": ""}
  ]
}`

// writeDefinitions returns the line of rabbitmq.conf that loads them.
func writeDefinitions(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "definitions.json")
	require.NoError(t, os.WriteFile(file, []byte(definitions), 0o600))
	return "load_definitions = " + file + "\n"
}

// listenTLS is the part of rabbitmq.conf for a listener with TLS, and logins by password and by certificate.
func listenTLS(address string, certs testenv.Certs, needsCert bool) string {
	return fmt.Sprintf(`# plugins: rabbitmq_auth_mechanism_ssl
listeners.ssl.1 = %s
ssl_options.cacertfile = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = %t
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
`, address, certs.CAFile, certs.ServerCert, certs.ServerKey, needsCert)
}

// TestRefusals has a broker with users, certificates and limits of its own, which takes
// some logins and messages, and others not.
func TestRefusals(t *testing.T) {
	t.Parallel()
	certs, secure := testenv.NewCerts(t), "127.0.0.1:"+testenv.Port(t)
	server := testenv.StartRabbitMQ(t, writeDefinitions(t)+"max_message_size = 1000\n"+listenTLS(secure, certs, false))
	t.Run("channel exceptions", func(t *testing.T) { channelExceptions(t, server) })
	t.Run("TLS", func(t *testing.T) { logins(t, server, secure, certs) })
}

// channelExceptions publishes what makes the broker close the channel, in
// a way that nothing tells beforehand: each message has its own answer.
func channelExceptions(t *testing.T, server *testenv.Server) {
	t.Helper()
	for name, c := range map[string]struct {
		config Config
		spoil  func(*message.Message)
		class  sinks.Class
		reason sinks.Reason
	}{
		"forbidden topic": {
			Config{URL: withLogin(t, server.URL(), "bound:bound@"), Exchange: "amq.topic"},
			func(m *message.Message) { m.Topic = "forbidden" }, sinks.Unavailable, sinks.ReasonAuth,
		},
		"forbidden exchange": {
			Config{URL: withLogin(t, server.URL(), "bound:bound@"), Exchange: "amq.direct"},
			nil, sinks.Unavailable, sinks.ReasonAuth,
		},
		"too large": {
			Config{URL: server.URL(), Exchange: "amq.topic"},
			func(m *message.Message) { m.Body = make([]byte, 1001) }, sinks.Permanent, sinks.ReasonTooLarge,
		},
	} {
		t.Run(name, func(t *testing.T) {
			topic := testenv.Name(t, "allowed")
			declare(t, server.URL(), topic, nil)
			require.NoError(t, open(t, server.URL()).QueueBind(topic, topic, "amq.topic", false, nil))
			c.config.Connections = 1
			sink := newSink(t, c.config)
			batch := make([]message.Message, 9)
			for i := range batch {
				batch[i] = newMessage(t, "orders", topic)
				if c.spoil == nil || i == 4 {
					spoil(c.spoil, &batch[i])
				}
			}
			outcomes := publish(t, sink, batch...)
			for i, outcome := range outcomes {
				if outcome.Class == sinks.Unknown && c.reason == sinks.ReasonTooLarge {
					// The limit is below what every broker takes, we assume; the next time we know.
					outcome = publish(t, sink, batch[i])[0]
				}
				if c.spoil == nil || i == 4 {
					requireOutcome(t, outcome, c.class, c.reason)
					require.False(t, outcome.Whole)
				} else {
					requireOutcome(t, outcome, sinks.Acknowledged, "")
				}
			}
			if c.reason == sinks.ReasonTooLarge {
				for i, outcome := range publish(t, sink, batch...) {
					require.Equal(t, i != 4, outcome.Class == sinks.Acknowledged, outcome.Class)
					require.NotEqual(t, sinks.Unknown, outcome.Class)
				}
			}
			if c.spoil != nil {
				require.GreaterOrEqual(t, len(read(t, server.URL(), topic, 8)), 8)
			}
		})
	}
}

func spoil(f func(*message.Message), m *message.Message) {
	if f != nil {
		f(m)
	}
}

func logins(t *testing.T, server *testenv.Server, secure string, certs testenv.Certs) {
	t.Helper()
	other := testenv.NewCerts(t)
	topic := testenv.Name(t, "topic")
	declare(t, server.URL(), topic, nil)
	trust := &tlsclient.Files{CAFile: certs.CAFile}
	both := &tlsclient.Files{CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey}
	for name, c := range map[string]struct {
		config Config
		class  sinks.Class
		reason sinks.Reason
	}{
		"plain":             {Config{URL: "amqps://guest:guest@" + secure, TLS: trust}, sinks.Acknowledged, ""},
		"wrong password":    {Config{URL: "amqps://guest:wrong@" + secure, TLS: trust}, sinks.Unavailable, sinks.ReasonAuth},
		"external":          {Config{URL: "amqps://" + secure, TLS: both, Auth: AuthExternal}, sinks.Acknowledged, ""},
		"external, no cert": {Config{URL: "amqps://" + secure, TLS: trust, Auth: AuthExternal}, sinks.Unavailable, sinks.ReasonAuth},
		"unknown authority": {Config{URL: "amqps://guest:guest@" + secure, TLS: &tlsclient.Files{CAFile: other.CAFile}}, sinks.Unavailable, sinks.ReasonAuth},
		"system's roots":    {Config{URL: "amqps://guest:guest@" + secure}, sinks.Unavailable, sinks.ReasonAuth},
		"other host name":   {Config{URL: "amqps://guest:guest@" + secure, TLS: &tlsclient.Files{CAFile: certs.CAFile, ServerName: "example.org"}}, sinks.Unavailable, sinks.ReasonAuth},
		"no TLS here":       {Config{URL: "amqps://guest:guest@" + server.Addr(), TLS: trust}, sinks.Unavailable, sinks.ReasonConnection},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Connections = 1
			sink := newSink(t, c.config)
			requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], c.class, c.reason)
		})
	}
}
