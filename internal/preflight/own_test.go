package preflight_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/check"
)

const (
	timeLimit = time.Minute
	pause     = 100 * time.Millisecond
)

// TestOwn looks at the configuration alone.
func TestOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("0123456789abcdef0123456789abcdef viewer\n"), 0o600))
	open := filepath.Join(dir, "open")
	require.NoError(t, os.WriteFile(open, []byte("0123456789abcdef0123456789abcdef viewer\n"), 0o644))
	keys := filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(keys, []byte("k1 "+strings.Repeat("0f", 32)+"\n"), 0o644))
	const day = 24 * time.Hour
	ended, soon, later := certificate(t, 2*day, -time.Hour), certificate(t, 300*day, 20*day), certificate(t, 300*day, 90*day)
	shortLived, nearlyOver := certificate(t, 2*time.Hour, 22*time.Hour), certificate(t, 20*time.Hour, 4*time.Hour)
	const sink = "sinks: {s: {type: nats, url: \"nats://127.0.0.1:1\"}}\n"
	const redis = "redis: {url: \"redis://127.0.0.1:1\"}\n"
	const rest = redis + "queues: {orders: {sink: s}}\n" + sink
	for name, c := range map[string]struct {
		config string
		codes  []string
	}{
		"defaults":    {rest, []string{}},
		"no listener": {rest + "admin: {listen: \"\"}\n", []string{}},
		"open":        {rest + "admin: {listen: \":8080\"}\n", []string{"warning admin_open"}},
		"plain":       {rest + "admin: {listen: \"0.0.0.0:8080\", auth: {tokens_file: " + tokens + "}}\n", []string{"warning admin_plain"}},
		"issuer":      {rest + "admin: {listen: \"0.0.0.0:8080\", auth: {issuers: {corp: {url: \"https://a.example\", audiences: [a], jwks_file: " + tokens + ", callers: [sub=* viewer]}}}}\n", []string{"error issuer_unread", "warning admin_plain"}},
		"key rights":  {rest + "encryption: {keys: " + keys + "}\n", []string{"warning file_rights"}},
		"file rights": {rest + "admin: {auth: {tokens_file: " + open + "}}\n", []string{"warning file_rights"}},
		"lease":       {rest + "poller: {lease: 2s, max_sleep: 1s}\n", []string{"warning timeouts"}},
		"drain":       {rest + "drain_timeout: 5s\n", []string{"warning timeouts"}},
		"late":        {redis + "queues: {orders: {sink: s, late: {after: 10s, then: drop}}}\n" + sink, []string{"warning late"}},
		"late enough": {redis + "queues: {orders: {sink: s, late: {after: 2m, then: drop}}}\n" + sink, []string{}},
		"ended":       {redis + queueOf + "{type: nats, url: \"tls://127.0.0.1:1\", tls: {ca_file: " + ended + "}}}\n", []string{"error certificate"}},
		"ends soon":   {redis + queueOf + "{type: nats, url: \"tls://127.0.0.1:1\", tls: {ca_file: " + soon + "}}}\n", []string{"warning certificate"}},
		"ends later":  {redis + queueOf + "{type: nats, url: \"tls://127.0.0.1:1\", tls: {ca_file: " + later + "}}}\n", []string{}},
		"short-lived": {redis + queueOf + "{type: nats, url: \"tls://127.0.0.1:1\", tls: {ca_file: " + shortLived + "}}}\n", []string{}},
		"not renewed": {redis + queueOf + "{type: nats, url: \"tls://127.0.0.1:1\", tls: {ca_file: " + nearlyOver + "}}}\n", []string{"warning certificate"}},
		"trusts all":  {redis + queueOf + "{type: nats, url: \"tls://127.0.0.1:1\", tls: {insecure_skip_verify: true}}}\n", []string{"warning tls_unverified"}},
	} {
		findings := look(t, "bridge", nil, "%s", c.config)
		assert.Equal(t, c.codes, codes(findings), "%s: %+v", name, findings)
	}
}

const queueOf = "queues: {orders: {sink: s}}\nsinks: {s: "

// certificate makes one of that age, with that much of its life left, and returns its file.
func certificate(t *testing.T, age, left time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-age), NotAfter: time.Now().Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "certificate.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return file
}

// TestSkew tells of a clock from a second on.
func TestSkew(t *testing.T) {
	t.Parallel()
	assert.Empty(t, check.Skew("it", -time.Second))
	assert.Contains(t, check.Skew("it", 1500*time.Millisecond)[0].What, "1.5s ahead of")
	assert.Contains(t, check.Skew("it", -time.Hour)[0].What, "behind")
	for _, c := range [][3]time.Duration{{5, 0, 5}, {5, 4, 3}, {5, 12, 0}, {-5, 0, -5}, {-5, 4, -3}, {-5, 12, 0}} {
		assert.Equal(t, c[2], check.Certain(c[0], c[1]), "%v", c)
	}
}
