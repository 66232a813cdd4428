package rabbitmq

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
)

// TestLink logs in with a password, which is in a file.
func TestLink(t *testing.T) {
	t.Parallel()
	runLink(t, &linktest.Link{Certs: testenv.NewCerts(t), Password: "correct-horse"}, AuthPlain)
}

// TestExternalLink logs in with the certificate alone.
func TestExternalLink(t *testing.T) {
	t.Parallel()
	runLink(t, &linktest.Link{Certs: testenv.NewCerts(t)}, AuthExternal)
}

// runLink runs a broker that demands a certificate on its port for TLS. The other port
// is for the test itself.
func runLink(t *testing.T, l *linktest.Link, auth string) {
	t.Helper()
	definitions := filepath.Join(t.TempDir(), "definitions.json")
	define := func() {
		t.Helper()
		require.NoError(t, os.WriteFile(definitions, fmt.Appendf(nil, `{
			"vhosts": [{"name": "/"}],
			"users": [{"name": "guest", "password": "guest", "tags": "administrator"}, {"name": "delaybridge", "password": %q, "tags": ""}],
			"permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
				{"user": "delaybridge", "vhost": "/", "configure": "", "write": ".*", "read": ""}]
		}`, cmp.Or(l.Password, "unused")), 0o600))
	}
	define()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	secure := listener.Addr().String()
	require.NoError(t, listener.Close())
	server := testenv.StartRabbitMQ(t, "load_definitions = "+definitions+"\n"+listenTLS(secure, l.Certs, true))
	topic := testenv.Name(t, "topic")
	declare(t, server.URL(), topic, nil)

	l.Restart = func(t *testing.T) {
		t.Helper()
		server.Stop()
		define()
		server.Start()
	}
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		config := Config{URL: "amqps://" + secure, Auth: auth, TLS: login.TLS, Connections: 1}
		if auth == AuthPlain {
			config.User, config.Password = "delaybridge", login.Secret
		}
		if login.TLS == nil {
			config.URL, config.Auth = "amqp://"+secure, AuthPlain
		}
		sink := newSink(t, config)
		return func(ctx context.Context) error {
			return linktest.Publish(ctx, t, sink, newMessage(t, "orders", topic))
		}
	}
	l.Run(t)
}
