package kafka

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Config says which cluster to publish to, and how. Files are read at each connect.
type Config struct {
	// Brokers are the addresses from which the cluster is learnt.
	Brokers []string `yaml:"brokers" required:"true" doc:"Addresses of some of the brokers, host:port each."`
	// SASL is the login; nil means none.
	SASL *SASL `yaml:"sasl" doc:"How to log in. Without this section there is no login."`

	// TLS is used for every connection if it is not nil.
	TLS *tlsclient.Files `yaml:"-"`
	// PublishTimeout is how long a request may make no progress, in writing it or
	// in waiting for its answer, and how long it may take to reach a partition's
	// leader; 0 means DefaultPublishTimeout. The broker is given half of it to have
	// the replicas acknowledge.
	PublishTimeout time.Duration `yaml:"-"`
	// Name is the client id that the brokers see in their logs and quotas.
	Name string `yaml:"-"`
}

// SASL is a login by user name and password, or by a token.
type SASL struct {
	Mechanism    string        `yaml:"mechanism" required:"true" enum:"plain,scram-sha-256,scram-sha-512,oauthbearer" doc:"The SASL mechanism."`
	Username     string        `yaml:"username" doc:"User to log in as. Not for oauthbearer."`
	Password     secret.Secret `yaml:"password" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" file:"true" doc:"File that holds the password. It is read at each connect."`
	Token        secret.Secret `yaml:"token" doc:"Token of oauthbearer."`
	TokenFile    string        `yaml:"token_file" file:"true" doc:"File that holds the token of oauthbearer, for example one that a workload identity or a cloud agent renews. It is read at each connect."`
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
	if len(c.Brokers) == 0 && !problems.Has("brokers") {
		problems.Add("brokers", "at least one is needed")
	}
	kind.CheckAddresses(problems, "brokers", c.Brokers)
	if c.SASL != nil && !problems.Has("sasl") {
		c.SASL.check(problems)
	}
}

// verify is the error of what no configuration has checked.
func (c Config) verify() error {
	if err := kind.Verify(message.Kafka, c, kind.Common{TLS: c.TLS, PublishTimeout: c.PublishTimeout}); err != nil || c.TLS == nil {
		return err
	}
	if _, err := c.TLS.Config(); err != nil {
		return fmt.Errorf("kafka sink: tls: %w", err)
	}
	return nil
}

func (s *SASL) check(problems kind.Problems) {
	hasPassword := s.Username != "" || s.Password.IsSet()
	switch {
	case mechanisms[s.Mechanism] == nil:
		problems.Add("sasl.mechanism", "%q: must be plain, scram-sha-256, scram-sha-512 or oauthbearer", s.Mechanism)
		return
	case s.Mechanism == oauthBearer && hasPassword:
		problems.Add("sasl", "oauthbearer has a token, and neither username nor password")
		return
	case s.Mechanism == oauthBearer:
		if !s.Token.IsSet() {
			problems.Add("sasl.token", "missing, give it or token_file")
		}
		return
	case s.Token.IsSet():
		problems.Add("sasl.token", "is for the mechanism oauthbearer only")
	}
	if s.Username == "" {
		problems.Add("sasl.username", "missing")
	}
	if !s.Password.IsSet() {
		problems.Add("sasl.password", "missing, give it or password_file")
	}
}
