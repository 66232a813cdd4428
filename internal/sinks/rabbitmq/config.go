package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Config says which broker to publish to and how to log in.
type Config struct {
	// Name is the sink's name in logs and at the broker.
	Name string
	// URLs are amqp or amqps URLs of one broker's nodes. The connections spread
	// over them; one that does not answer is followed by the next.
	URLs []string
	// Exchange receives the messages. Empty is the default exchange: each message
	// goes straight to the queue that its topic names.
	Exchange string
	// User and Password, where set, override those of the URLs. A password in a file is
	// read at each connect.
	User     string
	Password secret.Secret
	// Auth is "plain", the default, or "external": the client certificate is the login.
	Auth string
	// TLS verifies the broker of amqps URLs; nil uses the system's roots.
	TLS *tlsclient.Files
	// Management is the URL of the management API, for [Sink.Check] only; empty: it is
	// not asked. Without a login of its own it has that of the first of URLs.
	Management string
	// Connections is how many connections carry the load: 1 to 64, 0 means 4.
	Connections int
	// PublishTimeout is how long a message waits for its confirmation while nothing
	// comes nearer to it, and how long the broker may take none of the bytes that
	// wait for it; 0 means 10 s.
	PublishTimeout time.Duration
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
	switch {
	case len(c.URLs) == 0:
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
	endpoints := make([]endpoint, 0, len(c.URLs))
	for i, raw := range c.URLs {
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
