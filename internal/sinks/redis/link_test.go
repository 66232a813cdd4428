package redis_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// TestALargeMessageOnASlowLink: one message takes longer than the publish timeout, which
// does not run while the link takes bytes.
func TestALargeMessageOnASlowLink(t *testing.T) {
	t.Parallel()
	const timeout, bytesPerSecond = 4 * time.Second, 100_000
	server := testenv.StartRedis(t)
	b, topic := broker{options: at(server.Addr())}, testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	proxy := testenv.NewProxy(t, server.Addr())
	sink := broker{options: at(proxy.Addr())}.newSink(t, redis.Config{PublishTimeout: timeout})
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0], sinks.Acknowledged, "")
	proxy.Rate(bytesPerSecond)
	m := sinktest.NewMessage(t, topic, "")
	m.Body = make([]byte, 960<<10)
	began := time.Now()
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	require.Greater(t, time.Since(began), timeout, "the link is not slow")
	require.Len(t, b.Read(t, topic, 2), 2)
}

// TestTLS publishes by a dialer that makes connections with TLS, and again when the server
// has gone and come back. A certificate that is not trusted is a matter of the login.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs, port := testenv.NewCerts(t), testenv.Port(t)
	server := testenv.StartRedis(t, "--appendonly", "yes", "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-ca-cert-file", certs.CAFile, "--tls-cert-file", certs.ServerCert, "--tls-key-file", certs.ServerKey)
	plain, topic := broker{options: at(server.Addr())}, testenv.Name(t, "topic")
	plain.MakeTopic(t, topic, sinktest.TopicOptions{})
	open := func(caFile string) *redis.Sink {
		secured := broker{options: at("127.0.0.1:" + port)}
		secured.options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return tlsclient.Files{CAFile: caFile}.Client(ctx, conn, "127.0.0.1")
		}
		return secured.newSink(t, redis.Config{PublishTimeout: 5 * time.Second})
	}
	sink := open(certs.CAFile)
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0], sinks.Acknowledged, "")
	server.Kill()
	require.NotEqual(t, sinks.Acknowledged, sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0].Class)
	server.Start()
	require.Eventually(t, func() bool {
		return sinktest.Publish(t, sink, sinktest.NewMessage(t, topic, ""))[0].Class == sinks.Acknowledged
	}, time.Minute, 10*time.Millisecond)
	stranger := open("")
	require.Eventually(t, func() bool { // On a busy machine the handshake may not end in time.
		outcome := sinktest.Publish(t, stranger, sinktest.NewMessage(t, topic, ""))[0]
		require.Equal(t, sinks.Unavailable, outcome.Class)
		return outcome.Reason == sinks.ReasonAuth
	}, time.Minute, 10*time.Millisecond)
}
