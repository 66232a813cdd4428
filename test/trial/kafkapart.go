package trial

import (
	"context"
	"errors"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// PatientKafka are properties for [Broker.BreakTopic]: a silent follower stays among the in-sync replicas. Kafka
// then waits as long for itself, if it is killed.
const PatientKafka = `
replica.lag.time.max.ms=900000
broker.session.timeout.ms=900000
`

// BreakTopic is that of [Broker]. The topic has a second replica, on a follower of
// its own: one that has left makes too few replicas, one that is paused a topic that
// hangs. The follower ends with the fault.
func (b kafkaBroker) BreakTopic(ctx context.Context, topic string, fault Fault) (heal func(context.Context) error, err error) {
	if fault == Missing {
		return func(ctx context.Context) error { return b.MakeTopic(ctx, topic) }, nil
	}
	follower, err := service.StartKafkaFollower(ctx, b.server, "controlled.shutdown.enable=true\n"+PatientKafka)
	if err != nil {
		return nil, err
	}
	fails := follower.Pause
	if fault == Refusing {
		fails = follower.Stop
	}
	if err := errors.Join(b.makeTopic(ctx, topic, 1, 2), b.inSync(ctx, topic, 2), b.configure(ctx, topic, "min.insync.replicas", "2"), fails()); err != nil {
		follower.Close()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer follower.Close()
		var resumed error
		if fault == Hanging {
			resumed = follower.Resume()
		}
		// It leaves the replicas that are in sync only where it is stopped in good order.
		return errors.Join(resumed, b.configure(ctx, topic, "min.insync.replicas", "1"), follower.Stop())
	}, nil
}

// inSync waits until so many replicas of each partition are in sync.
func (b kafkaBroker) inSync(ctx context.Context, topic string, replicas int) error {
	client, done := b.client()
	defer done()
	for {
		response, err := client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
		if err == nil && len(response.Topics) == 1 && isInSync(response.Topics[0], replicas) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isInSync(topic kafkago.Topic, replicas int) bool {
	for _, partition := range topic.Partitions {
		if len(partition.Isr) < replicas {
			return false
		}
	}
	return len(topic.Partitions) > 0
}

// configure sets one entry of a topic's configuration.
func (b kafkaBroker) configure(ctx context.Context, topic, name, value string) error {
	client, done := b.client()
	defer done()
	response, err := client.IncrementalAlterConfigs(ctx, &kafkago.IncrementalAlterConfigsRequest{
		Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: name, Value: value, ConfigOperation: kafkago.ConfigOperationSet}},
		}},
	})
	if err != nil {
		return err
	}
	for _, resource := range response.Resources {
		err = errors.Join(err, resource.Error)
	}
	return err
}
