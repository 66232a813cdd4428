package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Config says which broker to publish to and how to log in. Files are read at each connect.
type Config struct {
	// URL may be a comma list: amqp or amqps URLs of one broker's nodes. The connections
	// spread over them; one that does not answer is followed by the next.
	URL string `yaml:"url" required:"true" url:"true" doc:"Where RabbitMQ is: amqp:// or amqps://; several, separated by commas, are tried in turn."`
	// User and Password, where set, override those of the URLs.
	User         string        `yaml:"user" doc:"User to log in as, with a password."`
	Password     secret.Secret `yaml:"password" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" file:"true" doc:"File that holds the password. It is read at each connect."`
	Exchange     string        `yaml:"exchange" default:"" doc:"Exchange to publish to. Empty: straight to the queue named by the topic."`
	Auth         string        `yaml:"auth" default:"plain" enum:"plain,external" doc:"How to log in: plain uses user and password, given here or in the URL; external uses the client certificate."`
	Management   string        `yaml:"management" default:"" url:"true" doc:"Where the broker's management API is, http:// or https://. bridge check asks it for bindings, queues and alarms, with the login of this URL, or else the sink's. Empty: it asks nothing."`
	Connections  int           `yaml:"connections" default:"4" min:"1" max:"64" doc:"Connections to publish on. Messages of one Key use the same one."`

	// Name is the sink's name in logs and at the broker.
	Name string `yaml:"-"`
	// TLS verifies the broker of amqps URLs; nil uses the system's roots.
	TLS *tlsclient.Files `yaml:"-"`
	// PublishTimeout is how long a message waits for its confirmation while nothing
	// comes nearer to it, and how long the broker may take none of the bytes that
	// wait for it; 0 means 10 s.
	PublishTimeout time.Duration `yaml:"-"`
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
	if (c.User != "") != c.Password.IsSet() {
		problems.Add("", "has only one of user and password, give both")
	}
	if c.Auth == AuthExternal && c.User != "" {
		problems.Add("user", "auth is external, whose login is the client certificate: give one of them")
	}
	for _, u := range kind.CheckURLs(problems, kind.SplitURLs(c.URL), "amqp", "amqps") {
		if u.User != nil && c.User != "" {
			problems.Add("user", "the URL holds a login too, give one of them")
		}
		if u.Scheme == "amqp" && c.TLS != nil {
			problems.Add("url", "has the scheme amqp, which is without TLS, but tls is given: use amqps")
		}
	}
	if u, err := url.Parse(c.Management); c.Management != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "") {
		problems.Add("management", "is no URL, give http://host:15672")
	}
	if len(c.Exchange) > maxShortString {
		problems.Add("exchange", "has %d bytes, allowed are %d", len(c.Exchange), maxShortString)
	}
	if c.Auth == AuthExternal && (c.TLS == nil || c.TLS.CertFile == "") {
		problems.Add("auth", "external needs a client certificate: tls.cert_file and tls.key_file")
	}
}

// The two ways to log in.
const (
	AuthPlain    = "plain"
	AuthExternal = "external"
)

const (
	defaultConnections    = 4
	maxConnections        = 64
	defaultPublishTimeout = 10 * time.Second
)

// endpoint is one node of the broker.
type endpoint struct {
	url    string // with the login; never logged
	host   string // host and port, for logs
	user   string
	pass   string
	secure bool
}

func (c Config) withDefaults() Config {
	if c.Auth == "" {
		c.Auth = AuthPlain
	}
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	if c.PublishTimeout == 0 {
		c.PublishTimeout = defaultPublishTimeout
	}
	return c
}

// check returns the nodes, or the first mistake. No error shows a URL, since
// it may hold a password.
func (c Config) check() ([]endpoint, error) {
	urls := kind.SplitURLs(c.URL)
	switch {
	case len(urls) == 0:
		return nil, errors.New("url is missing")
	case c.Auth != AuthPlain && c.Auth != AuthExternal:
		return nil, fmt.Errorf("auth %q: allowed are plain and external", c.Auth)
	case c.Connections < 1 || c.Connections > maxConnections:
		return nil, fmt.Errorf("connections %d: allowed are 1 to %d", c.Connections, maxConnections)
	case c.PublishTimeout < 0:
		return nil, fmt.Errorf("publish timeout %v: must not be negative", c.PublishTimeout)
	case len(c.Exchange) > maxShortString:
		return nil, fmt.Errorf("exchange: %d bytes, allowed are %d", len(c.Exchange), maxShortString)
	}
	endpoints := make([]endpoint, 0, len(urls))
	for i, raw := range urls {
		e, err := c.parse(raw)
		if err != nil {
			return nil, fmt.Errorf("url %d: %w", i+1, err)
		}
		endpoints = append(endpoints, e)
	}
	if _, err := c.tlsConfig(); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return endpoints, nil
}

func (c Config) parse(raw string) (endpoint, error) {
	uri, err := amqp.ParseURI(raw)
	if err != nil {
		return endpoint{}, errors.New("not an amqp or amqps URL; special characters of user and password must be percent-encoded")
	}
	e := endpoint{
		url:  raw,
		host: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)),
		user: uri.Username, pass: uri.Password, secure: uri.Scheme == "amqps",
	}
	switch {
	case e.secure:
	case c.Auth == AuthExternal:
		return endpoint{}, errors.New("auth external needs an amqps URL")
	case c.TLS != nil && *c.TLS != (tlsclient.Files{}):
		return endpoint{}, errors.New("tls is configured, but the URL is not amqps")
	}
	return e, nil
}

// login returns the SASL mechanism, reading the password now.
func (c Config) login(e endpoint) (amqp.Authentication, error) {
	if c.Auth == AuthExternal {
		return &amqp.ExternalAuth{}, nil
	}
	return c.passwordOf(e.user, e.pass)
}

// passwordOf is the login by password: ours, or else that of a URL.
func (c Config) passwordOf(user, pass string) (*amqp.PlainAuth, error) {
	login := &amqp.PlainAuth{Username: user, Password: pass}
	if c.User != "" {
		login.Username = c.User
	}
	if c.Password.IsSet() {
		var err error
		if login.Password, err = c.Password.Reveal(); err != nil {
			return nil, &loginError{err}
		}
	}
	return login, nil
}

// tlsConfig returns a new configuration for each dial: the driver writes the
// host's name into it.
func (c Config) tlsConfig() (*tls.Config, error) {
	if c.TLS == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	return c.TLS.Config()
}
