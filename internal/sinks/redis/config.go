package redis

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/redisclient"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Config says where Redis is, and how to log in: one of URL, Addrs, and Master with
// Sentinels is given. A password in a file is read at each connect.
type Config struct {
	URL       string   `yaml:"url" url:"true" doc:"Where Redis is: redis://, rediss:// (TLS) or unix://, with user, password and database number."`
	Addrs     []string `yaml:"addrs" doc:"Addresses of some of a Cluster's nodes, host:port each."`
	Master    string   `yaml:"master" doc:"Name of the master that the sentinels watch."`
	Sentinels []string `yaml:"sentinels" doc:"Addresses of the sentinels, host:port each. The bridge asks them without a login."`

	User         string        `yaml:"user" doc:"User to log in as, with a password."`
	Password     secret.Secret `yaml:"password" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" file:"true" doc:"File that holds the password. It is read at each connect."`

	// TLS is nil if there is none, or if the URL alone says so.
	TLS *tlsclient.Files `yaml:"-"`
	// PublishTimeout is how long a pipeline may go without progress, in writing or in
	// answers; 0 means DefaultPublishTimeout.
	PublishTimeout time.Duration `yaml:"-"`
	// Name is our name in the server's list of clients.
	Name string `yaml:"-"`
}

// With implements [kind.Settings].
func (c Config) With(common kind.Common) kind.Settings {
	c.Name, c.TLS, c.PublishTimeout = common.Name, common.TLS, common.PublishTimeout
	return c
}

// Check implements [kind.Settings].
func (c Config) Check(problems kind.Problems) {
	ways := 0
	for _, isGiven := range []bool{c.URL != "", len(c.Addrs) > 0, len(c.Sentinels) > 0} {
		if isGiven {
			ways++
		}
	}
	if ways != 1 && !problems.Has("") {
		problems.Add("", "give one of url, addrs, and master with sentinels")
	}
	if (c.Master != "") != (len(c.Sentinels) > 0) {
		problems.Add("", "has only one of master and sentinels, give both")
	}
	kind.CheckAddresses(problems, "addrs", c.Addrs)
	kind.CheckAddresses(problems, "sentinels", c.Sentinels)
	if c.URL != "" {
		c.checkURL(problems)
	}
}

func (c Config) checkURL(problems kind.Problems) {
	if problems.Has("url") {
		return
	}
	u, wrong := redisclient.CheckURL(c.URL)
	for _, what := range wrong {
		problems.Add("url", "%s", what)
	}
	if u != nil && u.User.Username() != "" && c.User != "" {
		problems.Add("user", "the URL holds a login too, give one of them")
	}
}

// Open implements [kind.Settings]. The sink logs nothing, because its outcomes say everything.
func (c Config) Open(*slog.Logger) (sinks.Sink, error) {
	if err := kind.Verify(message.Redis, c, kind.Common{TLS: c.TLS, PublishTimeout: c.PublishTimeout}); err != nil {
		return nil, err
	}
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	return New(client, c), nil
}

// Source implements [kind.Consumed].
func (c Config) Source(options source.Options) (source.Source, error) {
	return NewSource(c.client, options)
}

func (c Config) client() (goredis.UniversalClient, error) {
	client, err := redisclient.New(redisclient.Config{
		URL: c.URL, Addrs: c.Addrs, Master: c.Master, Sentinels: c.Sentinels,
		Username: c.User, Password: c.Password, TLS: c.TLS, DialTimeout: dialTimeout, Timeout: DefaultPublishTimeout, Name: c.Name,
	}, func(options *goredis.UniversalOptions) { Tune(options, c) })
	if err != nil {
		return nil, fmt.Errorf("redis sink: %w", err)
	}
	return client, nil
}

// Grants implements [kind.Settings]: to add to streams, and to look at them.
func (c Config) Grants(use kind.Use) []string {
	commands := []string{"xadd", "ping", "client|setname", "type", "info", "config|get"}
	if len(c.Addrs) > 0 {
		commands = append(commands, "cluster|shards", "cluster|slots", "command", "readonly", "asking")
	}
	patterns := slices.Clone(use.Topics)
	if len(use.Consumed) > 0 {
		commands = append(commands, "exists", "xgroup|create", "xgroup|delconsumer", "xinfo|consumers", "xreadgroup", "xautoclaim", "xclaim", "xack", "xdel", "multi", "exec")
	}
	for _, of := range use.Consumed {
		patterns = append(patterns, of.Topic, of.Dead)
	}
	slices.Sort(patterns)
	words := []string{"redis-cli ACL SETUSER", kind.Shell(cmp.Or(kind.UserOf([]string{c.URL}), c.User, kind.AnyUser)), "on '>PASSWORD'"}
	for _, pattern := range slices.Compact(patterns) {
		words = append(words, kind.Shell("~"+pattern))
	}
	for _, command := range commands {
		words = append(words, kind.Shell("+"+command))
	}
	return []string{strings.Join(words, " ")}
}

// dialTimeout is for making a connection.
const dialTimeout = 2 * time.Second

func (c Config) timeout() time.Duration { return cmp.Or(c.PublishTimeout, DefaultPublishTimeout) }

const (
	// pipelinesMost bounds the concurrent pipelines to each node: the senders of several
	// streams meet at a node of a Cluster.
	pipelinesMost = 16
	// connectionsMost bounds the connections to each node that carry none: those of Ping and
	// of questions.
	connectionsMost = 8
)

// Tune sets what a sink needs of its client: deadlines that count from the last progress of
// a connection, few connections, and no automatic resending. The other options stay as they
// are; a Dialer must be set before.
func Tune(options *goredis.UniversalOptions, config Config) {
	timeout := config.timeout()
	dial := options.Dialer
	if dial == nil {
		dialer := &net.Dialer{Timeout: options.DialTimeout, KeepAlive: keepAlive}
		dial = dialer.DialContext
	}
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newSocket(conn), nil
	}
	options.ReadTimeout, options.WriteTimeout, options.ContextTimeoutEnabled = timeout, timeout, true
	options.MaxRetries, options.DialerRetries = -1, 1
	options.Protocol = 2 // Nothing is pushed, so each reply is read once.
	options.PoolSize, options.PipelinePoolSize = connectionsMost, pipelinesMost
}
