package config

import (
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Sink is one broker. Keys that are not for its Type are zero.
type Sink struct {
	Type           message.SinkType `yaml:"type" required:"true" enum:"kafka,nats,rabbitmq" doc:"The kind of broker."`
	PublishTimeout time.Duration    `yaml:"publish_timeout" default:"10s" doc:"How long the broker may take to answer for a message, from its hand-over to the connection. At most a third of poller.claim_timeout."`
	// TLS is nil where the section is missing.
	TLS *tlsclient.Files `yaml:"tls" doc:"Turns TLS on, and says how. An empty section verifies against the system's roots."`

	// URL may be a comma list and may hold users and passwords; see [Sink.URLs].
	URL     string   `yaml:"url" only:"nats,rabbitmq" required:"true" url:"true" doc:"Where the broker is: nats:// or tls://, amqp:// or amqps://. Several, separated by commas, are tried in turn."`
	Brokers []string `yaml:"brokers" only:"kafka" required:"true" doc:"Addresses of some of the brokers, host:port each."`
	SASL    *SASL    `yaml:"sasl" only:"kafka" doc:"How to log in. Without this section there is no login."`

	Login Login `yaml:",inline"`

	Exchange    string       `yaml:"exchange" only:"rabbitmq" default:"" doc:"Exchange to publish to. Empty: straight to the queue named by the topic."`
	Auth        RabbitMQAuth `yaml:"auth" only:"rabbitmq" default:"plain" enum:"plain,external" doc:"How to log in: plain with user and password, of their own or in the URL, external with the client certificate."`
	Management  string       `yaml:"management" only:"rabbitmq" default:"" url:"true" doc:"Where the broker's management API is, http:// or https://, for the command check: it tells bindings, queues and alarms. Its login is that of the URL, or else the sink's. Empty: it is not asked."`
	Connections int          `yaml:"connections" only:"rabbitmq" default:"4" min:"1" max:"64" doc:"Connections to publish on. Messages of one Key use the same one."`
}

// Login is the login of a NATS or RabbitMQ sink, whose URL may hold it instead.
type Login struct {
	User         string        `yaml:"user" only:"nats,rabbitmq" doc:"User to log in as, with a password."`
	Password     secret.Secret `yaml:"password" only:"nats,rabbitmq" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" only:"nats,rabbitmq" file:"true" doc:"File that holds the password. It is read at each connect."`
	Token        secret.Secret `yaml:"token" only:"nats" doc:"Token to log in with."`
	TokenFile    string        `yaml:"token_file" only:"nats" file:"true" doc:"File that holds the token. It is read at each connect."`
	CredsFile    string        `yaml:"creds_file" only:"nats" file:"true" doc:"Credentials file (JWT and key) to log in with."`
	NKeyFile     string        `yaml:"nkey_file" only:"nats" file:"true" doc:"File with the NKey seed to log in with."`
}

// RabbitMQAuth is the SASL mechanism of a RabbitMQ sink.
type RabbitMQAuth string

// The SASL mechanisms of a RabbitMQ sink.
const (
	AuthPlain    RabbitMQAuth = "plain"
	AuthExternal RabbitMQAuth = "external"
)

// SASL is the login of a Kafka sink.
type SASL struct {
	Mechanism    SASLMechanism `yaml:"mechanism" required:"true" enum:"plain,scram-sha-256,scram-sha-512,oauthbearer" doc:"The SASL mechanism."`
	Username     string        `yaml:"username" doc:"User to log in as. Not for oauthbearer."`
	Password     secret.Secret `yaml:"password" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" file:"true" doc:"File that holds the password. It is read at each connect."`
	Token        secret.Secret `yaml:"token" doc:"Token of oauthbearer."`
	TokenFile    string        `yaml:"token_file" file:"true" doc:"File that holds the token of oauthbearer, as a workload identity or an agent of the cloud keeps it. It is read at each connect."`
}

// SASLMechanism is the SASL mechanism of a Kafka sink.
type SASLMechanism string

// The SASL mechanisms of a Kafka sink.
const (
	SASLPlain       SASLMechanism = "plain"
	SASLScramSHA256 SASLMechanism = "scram-sha-256"
	SASLScramSHA512 SASLMechanism = "scram-sha-512"
	SASLOAuthBearer SASLMechanism = "oauthbearer"
)

func (s Sink) variant() (value, key string) { return string(s.Type), "type" }

// URLs returns the sink's URLs one by one, trimmed. A NATS server that is given
// as host:port gets the scheme nats.
func (s Sink) URLs() []string {
	if s.URL == "" {
		return nil
	}
	urls := strings.Split(s.URL, ",")
	for i, u := range urls {
		urls[i] = strings.TrimSpace(u)
		if s.Type == message.NATS && !strings.Contains(urls[i], "://") {
			urls[i] = "nats://" + urls[i]
		}
	}
	return slices.DeleteFunc(urls, func(u string) bool { return u == "" || u == "nats://" })
}
