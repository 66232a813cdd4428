package app

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/linktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

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
		rdb, err := NewRedis(c, "test")
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
		rdb, err := NewRedis(config.Redis{Mode: config.Standalone, URL: url, TLS: files, DialTimeout: 5 * time.Second, Timeout: 5 * time.Second}, "test")
		require.NoError(t, err)
		defer func() { _ = rdb.Close() }()
		return rdb.Ping(t.Context()).Err()
	}
	require.NoError(t, ping("redis://"+server.Addr(), nil))
	require.NoError(t, ping("rediss://127.0.0.1:"+port, &tlsclient.Files{CAFile: certs.CAFile}))
	require.ErrorContains(t, ping("rediss://127.0.0.1:"+port, nil), "give in ca_file")
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
