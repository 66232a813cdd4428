package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// connectTimeout bounds dialling, TLS and login at one server.
	connectTimeout = 2 * time.Second
	// writeTimeout ends a connection whose server has read nothing for that long.
	writeTimeout = 10 * time.Second
	// pingInterval and pingsOut find a half-open connection within 30 s.
	pingInterval = 10 * time.Second
	pingsOut     = 2
)

// Config says where NATS is and who we are. There is at most one kind of login; one in a
// URL counts for that server. Files are read at each connect, so that a rotated login is
// picked up.
type Config struct {
	// URL may be a comma list of host:port, nats:// and tls://. They are tried in turn.
	URL          string        `yaml:"url" required:"true" url:"true" doc:"Where NATS is: nats:// or tls://; several, separated by commas, are tried in turn."`
	User         string        `yaml:"user" doc:"User to log in as, with a password."`
	Password     secret.Secret `yaml:"password" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" file:"true" doc:"File that holds the password. It is read at each connect."`
	Token        secret.Secret `yaml:"token" doc:"Token to log in with."`
	TokenFile    string        `yaml:"token_file" file:"true" doc:"File that holds the token. It is read at each connect."`
	CredsFile    string        `yaml:"creds_file" file:"true" doc:"Credentials file (JWT and key) to log in with."`
	NKeyFile     string        `yaml:"nkey_file" file:"true" doc:"File with the NKey seed to log in with."`

	// TLS, if not nil, demands TLS; nil leaves it to the URL's scheme and the server.
	TLS *tlsclient.Files `yaml:"-"`
	// PublishTimeout is how long the server may take to answer a message, from when
	// it can have got it, or to take any bytes; 0 means DefaultPublishTimeout.
	PublishTimeout time.Duration `yaml:"-"`
	// Name is what the server's monitoring calls the connection.
	Name string `yaml:"-"`
}

// With implements [kind.Settings].
func (c Config) With(common kind.Common) kind.Settings {
	c.Name, c.TLS, c.PublishTimeout = common.Name, common.TLS, common.PublishTimeout
	return c
}

// Open implements [kind.Settings].
func (c Config) Open(logger *slog.Logger) (sinks.Sink, error) { return New(c, logger) }

// Check implements [kind.Settings].
func (c Config) Check(problems kind.Problems) {
	logins := 0
	for _, u := range kind.CheckURLs(problems, c.servers(), "nats", "tls") {
		if u.User != nil {
			logins = 1
		}
	}
	for _, given := range []bool{c.User != "", c.Token.IsSet(), c.CredsFile != "", c.NKeyFile != ""} {
		if given {
			logins++
		}
	}
	if logins > 1 {
		problems.Add("", "has several logins, give one: in the url, user and password, token, creds_file or nkey_file")
	}
	if (c.User != "") != c.Password.IsSet() {
		problems.Add("", "has only one of user and password, give both")
	}
}

// verify is the error of what no configuration has checked.
func (c Config) verify() error {
	return kind.Verify(message.NATS, c, kind.Common{TLS: c.TLS, PublishTimeout: c.PublishTimeout})
}

// servers returns the single URLs.
func (c *Config) servers() []string {
	servers := kind.SplitURLs(c.URL)
	for i, server := range servers {
		if !strings.Contains(server, "://") {
			servers[i] = "nats://" + server
		}
	}
	return servers
}

// connect logs in at one server. The connection lives until it is closed, or breaks; it never reconnects.
func (c *Config) connect(d *dialer, server string, adjust func(*natsgo.Options)) (*natsgo.Conn, error) {
	options, err := c.options(server)
	if err != nil {
		return nil, err
	}
	options.CustomDialer = d
	adjust(&options)
	nc, err := options.Connect()
	if errors.Is(err, natsgo.ErrNoServers) && d.err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", d.err) // The client hides a refused connection.
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", c.explain(err))
	}
	return nc, nil
}

// options are those of a connection that never reconnects by itself.
func (c *Config) options(server string) (natsgo.Options, error) {
	options := natsgo.GetDefaultOptions()
	options.Servers = []string{server}
	options.Name = c.Name
	options.AllowReconnect = false
	options.IgnoreDiscoveredServers = true
	options.SkipHostLookup = true // the dialler resolves, and can be interrupted
	options.SkipSubjectValidation = true
	options.ReconnectOnFlusherError = true // which here means: close
	options.Timeout = connectTimeout
	options.FlusherTimeout = writeTimeout
	options.PingInterval = pingInterval
	options.MaxPingsOut = pingsOut
	if err := c.login(&options); err != nil {
		return options, err
	}
	return options, c.secure(&options)
}

func (c *Config) login(options *natsgo.Options) error {
	password, err := c.Password.Reveal()
	if err != nil {
		return loginError{err}
	}
	token, err := c.Token.Reveal()
	if err != nil {
		return loginError{err}
	}
	options.User, options.Password, options.Token = c.User, password, token
	switch {
	case c.CredsFile != "":
		err = natsgo.UserCredentials(c.CredsFile)(options)
	case c.NKeyFile != "":
		var option natsgo.Option
		if option, err = natsgo.NkeyOptionFromSeed(c.NKeyFile); err == nil {
			err = option(options)
		}
	}
	if err != nil {
		return loginError{err}
	}
	return nil
}

func (c *Config) secure(options *natsgo.Options) error {
	if c.TLS == nil {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		return nil
	}
	config, err := c.TLS.Config()
	if err != nil {
		return loginError{err}
	}
	options.Secure, options.TLSConfig = true, config
	return nil
}

// explain says what to do about a handshake that failed.
func (c *Config) explain(err error) error {
	if c.TLS == nil {
		return tlsclient.Files{}.Explain(err)
	}
	return c.TLS.Explain(err)
}
