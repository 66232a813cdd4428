package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// knownAgain is how often brokers are asked again: for topics that were just made, and for the controller.
const knownAgain = 50 * time.Millisecond

// errNoController: while one is elected, and while it has fenced all brokers, they name none.
var errNoController = errors.New("the broker knows no controller")

// Dialer returns a dialer of kafka-go with the login and the TLS of the
// configuration, for readers. It reads the CA file; the password is read at
// each login.
func (c Config) Dialer() (*kafka.Dialer, error) {
	if err := c.verify(); err != nil {
		return nil, err
	}
	dialer := &kafka.Dialer{ClientID: c.Name, Timeout: connectTimeout, DualStack: true}
	if c.TLS != nil {
		config, err := c.TLS.Config()
		if err != nil {
			return nil, fmt.Errorf("check kafka sink: tls: %w", err)
		}
		dialer.TLS = config
	}
	if c.SASL != nil {
		dialer.SASLMechanism = mechanism{c.SASL}
	}
	return dialer, nil
}

// mechanism reads the password, or the token, when a login begins.
type mechanism struct{ login *SASL }

// Name implements [sasl.Mechanism].
func (m mechanism) Name() string { return strings.ToUpper(m.login.Mechanism) }

// Start implements [sasl.Mechanism].
func (m mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	made, err := m.login.mechanism()
	if err != nil {
		return nil, nil, err
	}
	return made.Start(ctx)
}

// CreateTopics makes those of the topics that do not exist, with that many
// partitions and the broker's default of replicas.
func CreateTopics(ctx context.Context, config Config, logger *slog.Logger, partitions int, topics ...string) error {
	return atOne(ctx, config, logger, func(ctx context.Context, o *opener, asked *conn) error {
		return createTopicsAt(ctx, o, asked, partitions, topics)
	})
}

// createTopicsAt asks one broker which topics are missing, and the controller to make them.
func createTopicsAt(ctx context.Context, o *opener, asked *conn, partitions int, topics []string) error {
	answer, err := asked.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	request := kafka.CreateTopicsRequest{}
	for _, topic := range answer.Topics {
		switch {
		case errors.Is(topic.Error, kafka.UnknownTopicOrPartition):
			request.Topics = append(request.Topics, kafka.TopicConfig{
				Topic: topic.Name, NumPartitions: partitions, ReplicationFactor: -1,
			})
		case topic.Error != nil && !errors.Is(topic.Error, kafka.LeaderNotAvailable):
			return fmt.Errorf("look for topic %s: %w", topic.Name, topic.Error)
		}
	}
	if answer.Controller.Port == 0 {
		return fmt.Errorf("look for topics: %s: %w", asked.client.Addr, errNoController)
	}
	if len(request.Topics) > 0 {
		if err := makeTopics(ctx, o, answer.Controller, &request); err != nil {
			return err
		}
	}
	return awaitTopics(ctx, o, answer.Brokers, topics)
}

// makeTopics asks the controller to make topics; another instance may have made them meanwhile.
func makeTopics(ctx context.Context, o *opener, at kafka.Broker, request *kafka.CreateTopicsRequest) error {
	controller, err := o.open(ctx, net.JoinHostPort(at.Host, strconv.Itoa(at.Port)))
	if err != nil {
		return err
	}
	defer controller.close()
	made, err := controller.client.CreateTopics(ctx, request)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for topic, err := range made.Errors {
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		o.logger.InfoContext(ctx, "kafka topic created", "event", "topic_created", "topic", topic, "partitions", request.Topics[0].NumPartitions)
	}
	return nil
}

// awaitTopics waits until each broker that can be reached knows the topics. A group whose
// coordinator does not gives its members no partition; and if the coordinator has learned of
// them a moment later, kafka-go sees no change that would make the group rebalance.
func awaitTopics(ctx context.Context, o *opener, brokers []kafka.Broker, topics []string) error {
	for _, broker := range brokers {
		conn, err := o.open(ctx, net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port)))
		if err != nil {
			continue // It coordinates no group.
		}
		err = conn.awaitTopics(ctx, topics)
		conn.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) awaitTopics(ctx context.Context, topics []string) error {
	for {
		answer, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
		if err != nil {
			return fmt.Errorf("look for topics: %w", err)
		}
		if !slices.ContainsFunc(answer.Topics, func(t kafka.Topic) bool { return len(t.Partitions) == 0 }) {
			return nil
		}
		if !wait.Sleep(ctx, knownAgain) {
			return fmt.Errorf("broker %s does not know the topics: %w", c.client.Addr, ctx.Err())
		}
	}
}

var _ sasl.Mechanism = mechanism{}

// findTopic returns an error if the topic is missing, or no broker answers.
func findTopic(ctx context.Context, config Config, logger *slog.Logger, topic string) error {
	return atOne(ctx, config, logger, func(ctx context.Context, _ *opener, asked *conn) error {
		answer, err := asked.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return fmt.Errorf("look for topic %s: %w", topic, err)
		}
		for _, found := range answer.Topics {
			if found.Error != nil {
				return fmt.Errorf("topic %s: %w", topic, found.Error)
			}
		}
		return nil
	})
}

// findGroup returns an error if the group may not be used.
func findGroup(ctx context.Context, config Config, logger *slog.Logger, group, topic string) error {
	return atOne(ctx, config, logger, func(ctx context.Context, _ *opener, asked *conn) error {
		answer, err := asked.client.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{Key: group, KeyType: kafka.CoordinatorKeyTypeConsumer})
		if err == nil {
			err = answer.Error
		}
		if errors.Is(err, kafka.GroupAuthorizationFailed) {
			return fmt.Errorf("group %s of topic %s: %w", group, topic, err)
		}
		return nil // A coordinator that is not there yet comes with the first member.
	})
}

// atOne asks the brokers in turn until one answers without an error. Where one knows no controller it asks
// all again, since that passes.
func atOne(ctx context.Context, config Config, logger *slog.Logger, ask func(context.Context, *opener, *conn) error) error {
	if err := config.verify(); err != nil {
		return err
	}
	if config.PublishTimeout == 0 {
		config.PublishTimeout = DefaultPublishTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, config.PublishTimeout)
	defer cancel()
	o := newOpener(config, logger)
	for {
		err := o.askInTurn(ctx, config.Brokers, ask)
		if !errors.Is(err, errNoController) || !wait.Sleep(ctx, knownAgain) {
			return err
		}
	}
}

func (o *opener) askInTurn(ctx context.Context, brokers []string, ask func(context.Context, *opener, *conn) error) error {
	var errs []error
	for _, address := range brokers {
		opened, err := o.open(ctx, address)
		if err == nil {
			err = ask(ctx, o, opened)
			opened.close()
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
