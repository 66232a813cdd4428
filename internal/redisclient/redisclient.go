// Package redisclient makes clients of Redis, in each way that it is deployed: the bridge's
// own, and those of sinks that publish to Redis.
package redisclient

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Config says where Redis is, and how to log in. One of URL, Sentinels and Addrs is set.
type Config struct {
	// URL is redis://, rediss:// (TLS) or unix://, with user, password and database number.
	URL string
	// Master is the name of the master that the Sentinels watch; they are host:port.
	Master    string
	Sentinels []string
	// Addrs are some nodes of a Cluster, host:port.
	Addrs []string

	// Username and Password, where set, are in place of those of the URL. A password in a
	// file is read at each connect.
	Username string
	Password secret.Secret
	// SentinelUsername and SentinelPassword are for the sentinels.
	SentinelUsername string
	SentinelPassword secret.Secret
	// TLS is nil if there is none, or where the URL alone says so.
	TLS *tlsclient.Files
	// DialTimeout is for making a connection, Timeout for one read or write.
	DialTimeout, Timeout time.Duration
	// Name is what the server's CLIENT LIST calls us.
	Name string
}

// CheckURL returns the parts of a URL of Redis, nil if it has none, and what is wrong with
// it: texts that complete a sentence. It allows what has no key of its own: the client's
// other options would change what we rely on, its retries for one.
func CheckURL(text string) (u *url.URL, problems []string) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, []string{"is no valid URL: percent-encode special characters in user and password"} // It may hold a password.
	}
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	database := strings.Trim(u.Path, "/")
	switch {
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		add("has the scheme %q, allowed are redis, rediss and unix", u.Scheme)
		return u, problems
	case u.Scheme == "unix" && database == "":
		add("has no path of a socket")
	case u.Scheme == "unix":
		database = ""
	case u.Hostname() == "":
		add("has no host")
	}
	query := u.Query()
	if query.Has("db") {
		database = query.Get("db")
		query.Del("db")
	}
	if _, err := strconv.ParseUint(database, 10, 31); database != "" && err != nil {
		add("has the database %q, must be a number", database)
	}
	for _, option := range slices.Sorted(maps.Keys(query)) {
		add("has the option %q, allowed is db; the others are keys of their own", option)
	}
	return u, problems
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

// New returns a client; it does no I/O. Each call ends with its ctx, and after the timeout.
// tune, unless nil, may change the options.
func New(cfg Config, tune func(*redis.UniversalOptions)) (redis.UniversalClient, error) {
	redis.SetLogger(noLogger{}) // Its errors come back from the calls, too.
	options := &redis.UniversalOptions{
		ClientName: cfg.Name, DialTimeout: cfg.DialTimeout, DialerRetries: 1,
		ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, ContextTimeoutEnabled: true,
		ConnMaxIdleTime: idleConnection, DisableIdentity: true, PoolSize: poolSize, MaxIdleConns: idlePool,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	var fromURL *redis.Options
	if len(cfg.Sentinels)+len(cfg.Addrs) == 0 {
		var err error
		if fromURL, err = redis.ParseURL(cfg.URL); err != nil {
			return nil, fmt.Errorf("url: %w", err)
		}
		options.DB, options.Username, options.Password = fromURL.DB, fromURL.Username, fromURL.Password
		if fromURL.TLSConfig != nil && cfg.TLS == nil { // A rediss URL demands TLS, too.
			cfg.TLS = &tlsclient.Files{}
		}
	}
	if err := secure(options, cfg.TLS); err != nil {
		return nil, err
	}
	login(options, cfg)
	if tune != nil {
		tune(options)
	}
	switch {
	case fromURL != nil: // Address and login are the URL's, but for keys of their own.
		simple := options.Simple()
		simple.Network, simple.Addr = fromURL.Network, fromURL.Addr
		return redis.NewClient(simple), nil
	case len(cfg.Addrs) > 0:
		options.Addrs = cfg.Addrs
		cluster := options.Cluster()
		cluster.ClusterStateReloadInterval = clusterReload
		return redis.NewClusterClient(cluster), nil
	default:
		password, err := cfg.SentinelPassword.Reveal()
		if err != nil {
			return nil, fmt.Errorf("sentinel_password: %w", err)
		}
		options.MasterName, options.Addrs = cfg.Master, cfg.Sentinels
		options.SentinelUsername, options.SentinelPassword = cfg.SentinelUsername, password
		return redis.NewFailoverClient(options.Failover()), nil
	}
}

// Sentinels returns a client for each configured sentinel; it does no I/O.
func Sentinels(cfg Config) ([]*redis.SentinelClient, error) {
	password, err := cfg.SentinelPassword.Reveal()
	if err != nil {
		return nil, fmt.Errorf("sentinel_password: %w", err)
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

// secure has each connection use TLS with the files as they are then; nil is no TLS.
func secure(options *redis.UniversalOptions, files *tlsclient.Files) error {
	if files == nil {
		return nil
	}
	if _, err := files.Config(); err != nil {
		return fmt.Errorf("tls: %w", err)
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
func login(options *redis.UniversalOptions, cfg Config) {
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
