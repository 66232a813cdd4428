package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// connectTimeout bounds dialling, TLS and login at one server.
	connectTimeout = 2 * time.Second
	// writeTimeout ends a connection whose server reads nothing for so long.
	writeTimeout = 10 * time.Second
	// pingInterval and pingsOut find a half-open connection within 30 s.
	pingInterval = 10 * time.Second
	pingsOut     = 2
)

// Config says where NATS is and who we are. At most one kind of login may be
// set; a login in a URL counts for that server.
type Config struct {
	// Servers are URLs: nats, tls, ws or wss. Each may be a comma list. They are tried in turn.
	Servers []string
	// User and Password, or Token, or a credentials file (JWT), or a seed file (NKey).
	// Files are read at each connect, so that a rotated login is picked up.
	User      string
	Password  secret.Secret
	Token     secret.Secret
	CredsFile string
	NKeyFile  string
	// TLS, where not nil, demands TLS; nil leaves it to the URL's scheme and the server.
	TLS *tlsclient.Files
	// PublishTimeout is how long the server may take to answer a message, from when
	// it can have got it, or to take any bytes; 0 means DefaultPublishTimeout.
	PublishTimeout time.Duration
	// Name is what the server's monitoring calls the connection.
	Name string
}

// servers returns the single URLs.
func (c *Config) servers() []string {
	var servers []string
	for _, list := range c.Servers {
		for server := range strings.SplitSeq(list, ",") {
			if server = strings.TrimSpace(server); server != "" {
				servers = append(servers, server)
			}
		}
	}
	return servers
}

// validate never puts a URL into its error: it may hold a password.
func (c *Config) validate() error {
	servers := c.servers()
	if len(servers) == 0 {
		return errors.New("nats: no server url")
	}
	for i, server := range servers {
		if err := checkURL(server); err != nil {
			return fmt.Errorf("nats: server url %d: %w", i+1, err)
		}
	}
	logins := 0
	for _, set := range []bool{c.User != "" || c.Password.IsSet(), c.Token.IsSet(), c.CredsFile != "", c.NKeyFile != ""} {
		if set {
			logins++
		}
	}
	switch {
	case logins > 1:
		return errors.New("nats: give one of user and password, token, creds_file, nkey_file")
	case c.User == "" && c.Password.IsSet():
		return errors.New("nats: password without user")
	case c.PublishTimeout < 0:
		return fmt.Errorf("nats: publish timeout %s is negative", c.PublishTimeout)
	case c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == ""):
		return errors.New("nats: tls: give both cert_file and key_file or neither")
	}
	return nil
}

func checkURL(server string) error {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return errors.New("cannot be parsed")
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		return fmt.Errorf("scheme %q is not nats, tls, ws or wss", u.Scheme)
	case u.Hostname() == "":
		return errors.New("has no host")
	}
	return nil
}

// connect logs in at one server. The connection lives until root ends, it is
// closed, or it breaks; it never reconnects.
func (c *Config) connect(root context.Context, server string, l *connection) (*natsgo.Conn, error) {
	options, err := c.options(server)
	if err != nil {
		return nil, err
	}
	dialer := &dialer{root: root, connection: l}
	options.CustomDialer = dialer
	options.ClosedCB = l.onClosed
	options.AsyncErrorCB = l.onError
	options.FlusherTimeout = 0 // The socket bounds each write itself.
	// A server that lives answers pings, so that one which is silent for a publish
	// timeout is dead. The client itself waits as long as it always did.
	options.PingInterval = max(min(pingInterval, c.PublishTimeout/3), time.Millisecond)
	options.MaxPingsOut = int((pingsOut + 1) * pingInterval / options.PingInterval)
	nc, err := options.Connect()
	if errors.Is(err, natsgo.ErrNoServers) && dialer.err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", dialer.err) // the client hides a refused connection
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
