package pubsub_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// One thing is wrong at a time. Nothing is sent.
func TestCheck(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	tokens, _ := newTokens(t, rightToken, nil)
	noTokens, _ := newTokens(t, "", func() bool { return true })
	file, noLogin := filepath.Join(t.TempDir(), "account.json"), filepath.Join(t.TempDir(), "account.json")
	writeAccount(t, file, tokens)
	writeAccount(t, noLogin, noTokens)
	plan := sinks.Plan{Topics: []string{"orders"}}
	look := func(a *answers, change func(*pubsub.Config)) []string {
		t.Helper()
		found := openSink(t, linktest.NewHTTPS(t, certs, false, a).URL, func(c *pubsub.Config) {
			c.TLS, c.CredentialsFile = &tlsclient.Files{CAFile: certs.CAFile}, file
			if change != nil {
				change(c)
			}
		}).Check(t.Context(), plan)
		require.Empty(t, a.sends())
		return sinktest.Told(found)
	}
	says := func(text string) func(http.ResponseWriter, string) bool {
		return func(w http.ResponseWriter, _ string) bool {
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	require.Empty(t, look(&answers{}, nil))
	require.Equal(t, []string{"W pubsub_subscription"}, look(&answers{subscriptions: says(`{}`)}, nil))
	require.Empty(t, look(&answers{subscriptions: says(`{}`), ask: says(`{"messageRetentionDuration":"600s"}`)}, nil), "it keeps them by itself")
	require.Equal(t, []string{"N pubsub_schema"}, look(&answers{ask: says(`{"schemaSettings":{"schema":"projects/p/schemas/s"}}`)}, nil))
	require.Equal(t, []string{"N pubsub_kms"}, look(&answers{ask: says(`{"kmsKeyName":"projects/p/keys/k"}`)}, nil))
	require.Equal(t, []string{"E pubsub_topic"}, look(&answers{ask: refuse(404, "NOT_FOUND")}, nil))
	require.Equal(t, []string{"E pubsub_denied"}, look(&answers{permissions: says(`{}`)}, nil))
	require.Equal(t, []string{"E pubsub_denied"}, look(&answers{ask: refuse(403, "PERMISSION_DENIED"), permissions: says(`{}`)}, nil))
	require.Equal(t, []string{"N pubsub_hidden"}, look(&answers{ask: refuse(403, "PERMISSION_DENIED")}, nil), "it may publish, and see nothing")
	require.Equal(t, []string{"N pubsub_hidden"}, look(&answers{permissions: refuse(501, "UNIMPLEMENTED")}, nil))
	require.Equal(t, []string{"E pubsub_login"}, look(&answers{ask: refuse(401, "UNAUTHENTICATED")}, nil))
	require.Equal(t, []string{"E pubsub_login"}, look(&answers{}, func(c *pubsub.Config) { c.CredentialsFile = noLogin }))
	require.Equal(t, []string{"E pubsub_login"}, look(&answers{}, func(c *pubsub.Config) { c.TLS = nil }), "a stranger")
	require.Equal(t, []string{"E pubsub_unreachable"}, look(&answers{ask: refuse(503, "UNAVAILABLE")}, nil))
	require.Equal(t, []string{"E pubsub_unreachable"}, look(&answers{}, func(c *pubsub.Config) { c.URL = "https://127.0.0.1:" + testenv.Port(t) }))
	plan.MaxMessage = 10_000_001
	require.Equal(t, []string{"W pubsub_message_size"}, look(&answers{}, nil))
	plan.Topics, plan.MaxMessage = []string{"order/timeout"}, 960<<10
	require.Equal(t, []string{"E pubsub_topic"}, look(&answers{}, nil))
}

// The server of the tests has what the check reads, too, but for permissions.
func TestCheckOfATopic(t *testing.T) {
	t.Parallel()
	b := newBroker(t, testenv.PubSub(t))
	topic := testenv.Name(t, "orders")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	plan := sinks.Plan{Topics: []string{topic, topic + "-missing"}}
	require.Equal(t, []string{"W pubsub_plain", "N pubsub_hidden", "E pubsub_topic"}, sinktest.Told(openSink(t, b.address, nil).Check(t.Context(), plan)))
}
