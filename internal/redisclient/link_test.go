package redisclient_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// redisLink is a link to servers of Redis that demand a certificate, and of who asks
// for data a password. Files of the servers are read when they start.
type redisLink struct {
	*linktest.Link
	t       *testing.T
	acl     string // the file of the users
	servers []*testenv.Server
}

func newRedisLink(t *testing.T) *redisLink {
	t.Helper()
	l := &redisLink{t: t, acl: filepath.Join(t.TempDir(), "users.acl")}
	l.Link = &linktest.Link{
		Certs: testenv.NewCerts(t), Password: "correct-horse",
		Restart: func(t *testing.T) {
			t.Helper()
			l.setUsers()
			for _, server := range l.servers {
				server.Kill()
			}
			for _, server := range l.servers {
				server.Start()
			}
		},
	}
	l.setUsers()
	return l
}

func (l *redisLink) setUsers() {
	l.t.Helper()
	require.NoError(l.t, os.WriteFile(l.acl, []byte("user default on >"+l.Password+" ~* &* +@all\n"), 0o600))
}

// open makes a client with what c says besides the login.
func (l *redisLink) open(c config.Redis) {
	l.Open = func(t *testing.T, login linktest.Login) linktest.Try {
		t.Helper()
		c := c
		c.TLS, c.Password, c.DialTimeout, c.Timeout = login.TLS, login.Secret, 5*time.Second, 5*time.Second
		rdb, err := c.Open("test")
		require.NoError(t, err)
		t.Cleanup(func() { _ = rdb.Close() })
		return func(ctx context.Context) error { return rdb.Incr(ctx, "tries").Err() }
	}
}

// start starts a Redis whose TLS port is free, and returns that.
func (l *redisLink) start(args ...string) string {
	l.t.Helper()
	port := testenv.Port(l.t)
	l.servers = append(l.servers, testenv.StartRedis(l.t, append([]string{
		"--tls-port", port, "--tls-auth-clients", "yes", "--aclfile", l.acl,
		"--tls-ca-cert-file", l.Certs.CAFile, "--tls-cert-file", l.Certs.ServerCert, "--tls-key-file", l.Certs.ServerKey,
	}, args...)...))
	return port
}

// TestRedisLink: the scheme of the URL says nothing here, the section tls does.
func TestRedisLink(t *testing.T) {
	t.Parallel()
	l := newRedisLink(t)
	l.open(config.Redis{Mode: config.Standalone, URL: "redis://127.0.0.1:" + l.start() + "/0"})
	l.Run(t)
}

// TestRedisWithoutCertificate: a server that asks for none is reached in the clear and
// with TLS, whose server is verified.
func TestRedisWithoutCertificate(t *testing.T) {
	t.Parallel()
	certs, port := testenv.NewCerts(t), testenv.Port(t)
	server := testenv.StartRedis(t, "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-ca-cert-file", certs.CAFile, "--tls-cert-file", certs.ServerCert, "--tls-key-file", certs.ServerKey)
	ping := func(url string, files *tlsclient.Files) error {
		rdb, err := (&config.Redis{Mode: config.Standalone, URL: url, TLS: files, DialTimeout: 5 * time.Second, Timeout: 5 * time.Second}).Open("test")
		require.NoError(t, err)
		defer func() { _ = rdb.Close() }()
		return rdb.Ping(t.Context()).Err()
	}
	require.NoError(t, ping("redis://"+server.Addr(), nil))
	require.NoError(t, ping("rediss://127.0.0.1:"+port, &tlsclient.Files{CAFile: certs.CAFile}))
	require.ErrorContains(t, ping("rediss://127.0.0.1:"+port, nil), "in ca_file")
}

func TestSentinelLink(t *testing.T) {
	t.Parallel()
	l := newRedisLink(t)
	data, port := l.start(), testenv.Port(t)
	l.servers = append(l.servers, testenv.StartOneSentinel(t,
		"tls-port "+port, "tls-auth-clients yes", "tls-replication yes",
		"tls-ca-cert-file "+l.Certs.CAFile, "tls-cert-file "+l.Certs.ServerCert, "tls-key-file "+l.Certs.ServerKey,
		"sentinel monitor primary 127.0.0.1 "+data+" 1", "sentinel auth-pass primary "+l.Password))
	l.open(config.Redis{Mode: config.Sentinel, Master: "primary", Sentinels: []string{"127.0.0.1:" + port}})
	l.Run(t)
}

// TestClusterLink: one node is a Cluster, too.
func TestClusterLink(t *testing.T) {
	t.Parallel()
	l := newRedisLink(t)
	port := l.start("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--tls-cluster", "yes",
		"--cluster-port", testenv.Port(t), "--cluster-announce-ip", "127.0.0.1")
	node := redis.NewClient(&redis.Options{Addr: l.servers[0].Addr(), Password: l.Password})
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.NoError(t, node.Close())
	l.open(config.Redis{Mode: config.Cluster, Addrs: []string{"127.0.0.1:" + port}})
	l.Run(t)
}

// open opens a client as a section of a configuration says.
func open(t *testing.T, section string) redis.UniversalClient {
	t.Helper()
	cfg, err := config.Parse([]byte("redis: "+section+"\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\n"), nil)
	require.NoError(t, err)
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	return rdb
}

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
		rdb := open(t, c.redis)
		err := rdb.Ping(t.Context()).Err()
		assert.Equal(t, c.works, err == nil, "%s: %v", name, err)
		require.NoError(t, rdb.Close())
	}
}

// TestRedisPassword logs in by key and by URL.
func TestRedisPassword(t *testing.T) {
	t.Parallel()
	fake := miniredis.RunT(t)
	fake.RequireUserAuth("bridge", "right")
	for section, works := range map[string]bool{
		`{url: "redis://` + fake.Addr() + `", username: bridge, password: right}`: true,
		`{url: "redis://` + fake.Addr() + `", username: bridge, password: wrong}`: false,
		`{url: "redis://bridge:right@` + fake.Addr() + `"}`:                       true,
		`{url: "redis://` + fake.Addr() + `"}`:                                    false,
	} {
		rdb := open(t, section)
		assert.Equal(t, works, rdb.Ping(t.Context()).Err() == nil, section)
		require.NoError(t, rdb.Close())
	}
}
