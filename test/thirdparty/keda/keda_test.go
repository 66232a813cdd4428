// Package keda_test reads a queue's demand as KEDA's scaler metrics-api does by deploy/kubernetes/keda.yaml: by a GET of
// the URL with the token, and by gjson, with which KEDA looks for the value. KEDA itself is left out, because its module
// brings the clients of some seventy systems; so nothing here knows its types of objects.
package keda_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"sigs.k8s.io/yaml"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const (
	manifest = "../../../deploy/kubernetes/keda.yaml"
	patience = 2 * time.Minute
	tick     = 50 * time.Millisecond
)

// The tokens of who may ask about the queue, of who may ask about another one, and of a producer.
const (
	scaler   = "scaler-token-1"
	other    = "other-token-1"
	producer = "producer-token-1"
)

// object is what the test needs to know of an object in the manifest.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		SecretTargetRef []struct{ Parameter, Name, Key string }
		Triggers        []trigger
	}
}

type trigger struct {
	Type              string
	Metadata          map[string]string
	AuthenticationRef struct{ Name string }
}

// readManifest returns the trigger metrics-api, and the objects by kind.
func readManifest(t *testing.T) (trigger, map[string]object) {
	t.Helper()
	content, err := os.ReadFile(manifest)
	require.NoError(t, err)
	all := map[string]object{}
	for part := range bytes.SplitSeq(content, []byte("\n---\n")) {
		var o object
		require.NoError(t, yaml.Unmarshal(part, &o))
		all[o.Kind] = o
	}
	for _, one := range all["ScaledObject"].Spec.Triggers {
		if one.Type == "metrics-api" {
			return one, all
		}
	}
	require.Fail(t, "there is no trigger metrics-api")
	return trigger{}, nil
}

// bridge is one with the queue "orders".
type bridge struct {
	t       *testing.T
	address string
	client  *delay.Client
}

func newBridge(t *testing.T) *bridge {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	text := fmt.Sprintf("%s viewer queues=orders\n%s viewer queues=others\n%s producer\n", scaler, other, producer)
	require.NoError(t, os.WriteFile(tokens, []byte(text), 0o600))
	prefix := testenv.Name(t, "p")
	cfg, err := config.Parse(fmt.Appendf(nil, `
prefix: %s
redis: {url: %q}
queues: {orders: {sink: events}, others: {sink: events}}
sinks: {events: {type: nats, url: %q}}
admin: {listen: "127.0.0.1:0", auth: {tokens_file: %s}}
drain_timeout: 5s
`, prefix, testenv.Redis(t), testenv.NATS(t), tokens), nil)
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	b := &bridge{t: t, address: listener.Addr().String()}
	b.client, err = delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() { ended <- app.Run(ctx, cfg, logger, app.AdminListener(listener)) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return b
}

// schedule schedules so many messages.
func (b *bridge) schedule(count int, after time.Duration) {
	b.t.Helper()
	for range count {
		_, err := b.client.Schedule(b.t.Context(), delay.Message{Topic: "t"}, delay.After(after))
		require.NoError(b.t, err)
	}
}

// get asks as the scaler does. Whatever the URL's host is called, the bridge is there.
func (b *bridge) get(from, token string) (status int, body []byte) {
	b.t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, b.address)
		},
	}}
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, from, http.NoBody)
	require.NoError(b.t, err)
	if token != "" {
		request.Header.Add("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	require.NoError(b.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return response.StatusCode, body
}

// TestDemandAsKEDAReadsIt: by the manifest, a token that is limited to the queue gets a number, and no other token does.
func TestDemandAsKEDAReadsIt(t *testing.T) {
	t.Parallel()
	asked, all := readManifest(t)
	assert.Equal(t, "bearer", asked.Metadata["authMode"])
	credentials := all["TriggerAuthentication"]
	assert.Equal(t, credentials.Metadata.Name, asked.AuthenticationRef.Name)
	assert.Equal(t, credentials.Metadata.Namespace, all["ScaledObject"].Metadata.Namespace)
	require.Len(t, credentials.Spec.SecretTargetRef, 1)
	assert.Equal(t, "token", credentials.Spec.SecretTargetRef[0].Parameter, "so the scaler calls what it sends as bearer")

	b := newBridge(t)
	from := asked.Metadata["url"]
	require.Eventually(t, func() bool {
		status, _ := b.get(from, scaler)
		return status == http.StatusOK
	}, patience, tick)
	value := func() float64 {
		t.Helper()
		status, body := b.get(from, scaler)
		require.Equal(t, http.StatusOK, status, "%s", body)
		found := gjson.GetBytes(body, asked.Metadata["valueLocation"])
		require.Equal(t, gjson.Number, found.Type, "%s", body)
		return found.Num
	}
	assert.Zero(t, value())
	b.schedule(5, 119*time.Second) // The manifest looks two minutes ahead.
	b.schedule(3, time.Hour)
	assert.InDelta(t, 5, value(), 0)

	for token, want := range map[string]int{other: http.StatusForbidden, producer: http.StatusForbidden, "none-of-them": http.StatusUnauthorized, "": http.StatusUnauthorized} {
		status, body := b.get(from, token)
		assert.Equal(t, want, status, "%q: %s", token, body)
	}
}
