package app

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// redisModule provides the client of Redis. It is made first and so closed last.
var redisModule = fx.Module("redis", fx.Provide(provideRedis))

func provideRedis(lc fx.Lifecycle, cfg *config.Config) (redis.UniversalClient, error) {
	rdb, err := NewRedis(cfg.Redis, cfg.Instance)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(rdb.Close))
	return rdb, nil
}

// idleConnection is how long an unused connection is kept: brokers of
// connections between us and Redis close them after some minutes.
const idleConnection = 5 * time.Minute

// Sizes of the client's pools.
const (
	// poolSize is how many connections to each node calls may use. Pollers bound
	// their calls themselves; this is so large because go-redis, after as many
	// failed dials, dials only once a second, and notices that much later that
	// Redis is back.
	poolSize = 1024
	// idlePool is how many connections are kept when a burst is over.
	idlePool = 32
	// clusterReload is how often the slots of a Cluster are read again: go-redis
	// does not by itself where a node refuses connections, and a dead primary
	// would be asked for a minute.
	clusterReload = time.Second
)

// NewRedis returns a client for the configured Redis; it does no I/O. Each call
// ends with its ctx, and after the configured timeout.
func NewRedis(cfg config.Redis, name string) (redis.UniversalClient, error) {
	redis.SetLogger(noLogger{}) // Its errors come back from the calls, too.
	options := &redis.UniversalOptions{
		ClientName: name, DialTimeout: cfg.DialTimeout, DialerRetries: 1,
		ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, ContextTimeoutEnabled: true,
		ConnMaxIdleTime: idleConnection, DisableIdentity: true, PoolSize: poolSize, MaxIdleConns: idlePool,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if err := secure(options, cfg.TLS); err != nil {
		return nil, err
	}
	switch cfg.Mode {
	case config.Sentinel:
		options.MasterName, options.Addrs = cfg.Master, cfg.Sentinels
		options.SentinelUsername = cfg.SentinelUsername
		password, err := cfg.SentinelPassword.Reveal()
		if err != nil {
			return nil, fmt.Errorf("redis.sentinel_password: %w", err)
		}
		options.SentinelPassword = password
		login(options, cfg)
		return redis.NewFailoverClient(options.Failover()), nil
	case config.Cluster:
		options.Addrs = cfg.Addrs
		login(options, cfg)
		cluster := options.Cluster()
		cluster.ClusterStateReloadInterval = clusterReload
		return redis.NewClusterClient(cluster), nil
	case config.Standalone:
	}
	return standalone(options, cfg)
}

// NewSentinels returns a client for each configured sentinel; it does no I/O.
func NewSentinels(cfg config.Redis) ([]*redis.SentinelClient, error) {
	password, err := cfg.SentinelPassword.Reveal()
	if err != nil {
		return nil, fmt.Errorf("redis.sentinel_password: %w", err)
	}
	options := redis.Options{
		Username: cfg.SentinelUsername, Password: password, DialTimeout: cfg.DialTimeout, DialerRetries: 1, DisableIdentity: true,
		ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, ContextTimeoutEnabled: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	shared := redis.UniversalOptions{DialTimeout: cfg.DialTimeout}
	if err := secure(&shared, cfg.TLS); err != nil {
		return nil, err
	}
	options.Dialer = shared.Dialer
	clients := make([]*redis.SentinelClient, len(cfg.Sentinels))
	for i, addr := range cfg.Sentinels {
		one := options
		one.Addr = addr
		clients[i] = redis.NewSentinelClient(&one)
	}
	return clients, nil
}

// standalone reads address, database and login from the URL; keys of their own win.
func standalone(options *redis.UniversalOptions, cfg config.Redis) (redis.UniversalClient, error) {
	fromURL, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("redis.url: %w", err)
	}
	options.DB = fromURL.DB
	if fromURL.TLSConfig != nil && cfg.TLS == nil { // A rediss URL demands TLS, too.
		if err := secure(options, &tlsclient.Files{}); err != nil {
			return nil, err
		}
	}
	options.Username, options.Password = fromURL.Username, fromURL.Password
	login(options, cfg)
	simple := options.Simple()
	simple.Network, simple.Addr = fromURL.Network, fromURL.Addr
	return redis.NewClient(simple), nil
}

// secure has each connection use TLS with the files as they are then; nil is no TLS.
func secure(options *redis.UniversalOptions, files *tlsclient.Files) error {
	if files == nil {
		return nil
	}
	if _, err := files.Config(); err != nil {
		return fmt.Errorf("redis.tls: %w", err)
	}
	timeout := options.DialTimeout
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(addr) // It was dialled.
		secured, err := files.Client(ctx, conn, host)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secured, nil
	}
	return nil
}

// login sets the user, whose password is read again at each connect.
func login(options *redis.UniversalOptions, cfg config.Redis) {
	if cfg.Username != "" {
		options.Username = cfg.Username
	}
	if !cfg.Password.IsSet() {
		return
	}
	user := options.Username
	options.CredentialsProviderContext = func(context.Context) (string, string, error) {
		return reveal(user, cfg.Password)
	}
}

func reveal(user string, password secret.Secret) (string, string, error) {
	text, err := password.Reveal()
	return user, text, err
}

// noLogger silences go-redis, which would print each failed dial.
type noLogger struct{}

// Printf implements go-redis' logger.
func (noLogger) Printf(context.Context, string, ...any) {}
