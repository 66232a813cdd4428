package app

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const redisOnly = "redis: %s\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {listen: \"\"}\n"

// TestRedisTLS dials a Redis that asks for a client certificate, a password and
// nothing less.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	port := testenv.Port(t)
	socket := filepath.Join(t.TempDir(), "redis.sock")
	testenv.StartRedis(t, "--tls-port", port, "--tls-auth-clients", "yes", "--unixsocket", socket,
		"--tls-ca-cert-file", certs.CAFile, "--tls-cert-file", certs.ServerCert, "--tls-key-file", certs.ServerKey)
	url := "rediss://127.0.0.1:" + port + "/2"
	for name, c := range map[string]struct {
		redis string
		works bool
	}{
		"certificate":    {`{url: "` + url + `", tls: {ca_file: ` + certs.CAFile + `, cert_file: ` + certs.ClientCert + `, key_file: ` + certs.ClientKey + `}}`, true},
		"no certificate": {`{url: "` + url + `", tls: {ca_file: ` + certs.CAFile + `}}`, false},
		"unknown issuer": {`{url: "` + url + `", tls: {cert_file: ` + certs.ClientCert + `, key_file: ` + certs.ClientKey + `}}`, false},
		"unix":           {`{url: "unix://` + socket + `?db=2"}`, true},
	} {
		rdb, err := NewRedis(parse(t, redisOnly, c.redis).Redis, "test")
		require.NoError(t, err, name)
		err = rdb.Ping(t.Context()).Err()
		assert.Equal(t, c.works, err == nil, "%s: %v", name, err)
		require.NoError(t, rdb.Close())
	}
}

// TestRedisPassword logs in by key and by URL.
func TestRedisPassword(t *testing.T) {
	t.Parallel()
	fake := miniredis.RunT(t)
	fake.RequireUserAuth("bridge", "right")
	for redis, works := range map[string]bool{
		`{url: "redis://` + fake.Addr() + `", username: bridge, password: right}`: true,
		`{url: "redis://` + fake.Addr() + `", username: bridge, password: wrong}`: false,
		`{url: "redis://bridge:right@` + fake.Addr() + `"}`:                       true,
		`{url: "redis://` + fake.Addr() + `"}`:                                    false,
	} {
		rdb, err := NewRedis(parse(t, redisOnly, redis).Redis, "test")
		require.NoError(t, err)
		assert.Equal(t, works, rdb.Ping(t.Context()).Err() == nil, redis)
		require.NoError(t, rdb.Close())
	}
}

// TestRunRefusesOldRedis: no such server is at hand, so one lies about its version.
func TestRunRefusesOldRedis(t *testing.T) {
	t.Parallel()
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		if command == "INFO" {
			peer.WriteBulk("redis_version:6.0.16\r\nmaxmemory_policy:noeviction\r\n")
		}
		return command == "INFO"
	})
	err := Run(t.Context(), parse(t, redisOnly, `{url: "redis://`+fake.Addr()+`"}`), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "6.0.16")
}
