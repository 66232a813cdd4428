package app

import (
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kafka"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/rabbitmq"
)

// sinksModule provides the configured sinks by name. They are made before the
// pollers, and so closed after them.
var sinksModule = fx.Module("sinks", fx.Provide(provideSinks))

// sinkSet are the sinks by name; queues that name one sink share it.
type sinkSet map[string]sinks.Sink

func provideSinks(lc fx.Lifecycle, cfg *config.Config, logger *slog.Logger) (sinkSet, error) {
	set := sinkSet{}
	for name, sinkConfig := range cfg.Sinks {
		sink, err := NewSink(sinkConfig, "delaybridge-"+name, logger.With("sink", name))
		if err != nil {
			return nil, fmt.Errorf("sinks.%s: %w", name, err)
		}
		set[name] = sink
		lc.Append(fx.StopHook(func(ctx context.Context) error {
			if err := sink.Close(ctx); err != nil {
				return fmt.Errorf("close sink %s: %w", name, err)
			}
			return nil
		}))
	}
	return set, nil
}

// NewSink makes the sink of a configuration; it does no I/O. client is what the
// broker sees as its name.
func NewSink(cfg config.Sink, client string, logger *slog.Logger) (sinks.Sink, error) {
	switch cfg.Type {
	case message.NATS:
		return nats.New(natsConfig(cfg, client), logger)
	case message.RabbitMQ:
		return rabbitmq.New(rabbitConfig(cfg, client), logger)
	case message.Kafka:
		return kafka.New(kafkaConfig(cfg, client), logger)
	default:
		return nil, unknownSink(cfg.Type)
	}
}

func unknownSink(sink message.SinkType) error {
	return fmt.Errorf("type %q: allowed are kafka, nats and rabbitmq", sink)
}

func natsConfig(cfg config.Sink, client string) nats.Config {
	login := cfg.Login
	return nats.Config{
		Servers: cfg.URLs(), User: login.User, Password: login.Password, Token: login.Token,
		CredsFile: login.CredsFile, NKeyFile: login.NKeyFile, TLS: cfg.TLS,
		PublishTimeout: cfg.PublishTimeout, Name: client,
	}
}

func rabbitConfig(cfg config.Sink, client string) rabbitmq.Config {
	return rabbitmq.Config{
		Name: client, URLs: cfg.URLs(), Exchange: cfg.Exchange, Auth: string(cfg.Auth), TLS: cfg.TLS,
		User: cfg.Login.User, Password: cfg.Login.Password,
		Management: cfg.Management, Connections: cfg.Connections, PublishTimeout: cfg.PublishTimeout,
	}
}

func kafkaConfig(cfg config.Sink, client string) kafka.Config {
	var sasl *kafka.SASL
	if cfg.SASL != nil {
		sasl = &kafka.SASL{
			Mechanism: string(cfg.SASL.Mechanism), Username: cfg.SASL.Username, Password: cfg.SASL.Password, Token: cfg.SASL.Token,
		}
	}
	return kafka.Config{
		Brokers: cfg.Brokers, SASL: sasl, TLS: cfg.TLS, PublishTimeout: cfg.PublishTimeout, Name: client,
	}
}
