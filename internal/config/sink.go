package config

import (
	"fmt"
	"reflect"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks/kafka"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
	"github.com/delaybridge/delaybridge/internal/sinks/rabbitmq"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
	"github.com/delaybridge/delaybridge/internal/sinks/webhook"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Sink is one broker.
type Sink struct {
	Type           message.SinkType `yaml:"type" required:"true" doc:"The kind of broker."`
	PublishTimeout time.Duration    `yaml:"publish_timeout" default:"10s" doc:"How long the broker may take to acknowledge a message, from its hand-over to the connection. At most a third of poller.claim_timeout."`
	// TLS is nil if the section is missing.
	TLS *tlsclient.Files `yaml:"tls" doc:"Turns TLS on, and says how. An empty section verifies against the system's roots."`

	Kinds `yaml:",inline"`
}

// Kinds are the settings of the kinds of brokers. A new one is a package and a line here; only is its Type,
// and the keys of its settings are the sink's own.
type Kinds struct {
	Kafka    kafka.Config    `yaml:",inline" only:"kafka"`
	NATS     nats.Config     `yaml:",inline" only:"nats"`
	PubSub   pubsub.Config   `yaml:",inline" only:"pubsub"`
	RabbitMQ rabbitmq.Config `yaml:",inline" only:"rabbitmq"`
	Redis    redis.Config    `yaml:",inline" only:"redis"`
	SQS      sqs.Config      `yaml:",inline" only:"sqs"`
	Webhook  webhook.Config  `yaml:",inline" only:"webhook"`
}

func (s Sink) variant() (value, key string) { return string(s.Type), "type" }

// Settings are those of the sink's Type, for a client of that name; nil of no known Type.
func (s Sink) Settings(name string) kind.Settings {
	all := reflect.ValueOf(s.Kinds)
	for i := range all.NumField() {
		if all.Type().Field(i).Tag.Get("only") == string(s.Type) {
			settings, _ := reflect.TypeAssert[kind.Settings](all.Field(i)) // As the tests know.
			return settings.With(kind.Common{Name: name, TLS: s.TLS, PublishTimeout: s.PublishTimeout})
		}
	}
	return nil
}

// IsConsumed reports whether the bridge can consume from the sink's broker: an endpoint of
// HTTP only takes.
func (s Sink) IsConsumed() bool {
	_, is := s.Settings("").(kind.Consumed)
	return is
}

// Source makes the source of a topic at the sink's broker, for a client of that name. It
// connects to nothing yet.
func (s Sink) Source(name string, options source.Options) (source.Source, error) {
	settings, is := s.Settings(name).(kind.Consumed)
	if !is {
		return nil, fmt.Errorf("nothing is consumed from sinks of type %s", s.Type)
	}
	return settings.Source(options)
}
