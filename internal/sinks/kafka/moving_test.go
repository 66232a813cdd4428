package kafka

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// movingTopic is a topic of two brokers whose partitions all have a replica on both.
type movingTopic struct {
	*testBroker // the first one, which is the controller
	name        string
	leader      int // the node that leads
}

func newMovingTopic(t *testing.T, partitions int) *movingTopic {
	t.Helper()
	first := testenv.StartKafka(t, "")
	second := testenv.StartKafkaFollower(t, first, "")
	m := &movingTopic{
		testBroker: &testBroker{config: Config{Brokers: []string{first.Addr(), second.Addr()}}}, name: testenv.Name(t, "topic"), leader: 1,
	}
	m.administer(t, func(ctx context.Context, client *kafka.Client) {
		config := kafka.TopicConfig{Topic: m.name, NumPartitions: -1, ReplicationFactor: -1}
		for number := range partitions {
			config.ReplicaAssignments = append(config.ReplicaAssignments, kafka.ReplicaAssignment{Partition: number, Replicas: []int{1, 2}})
		}
		response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
		require.NoError(t, err)
		require.NoError(t, response.Errors[m.name])
	})
	m.awaitLed(t)
	return m
}

// move makes the other broker lead all partitions, as an operator who spreads leaders does.
func (m *movingTopic) move(t *testing.T) {
	t.Helper()
	m.leader = 3 - m.leader
	m.administer(t, func(ctx context.Context, client *kafka.Client) {
		answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{m.name}})
		require.NoError(t, err)
		order := kafka.AlterPartitionReassignmentsRequest{Topic: m.name, Timeout: patience}
		election := kafka.ElectLeadersRequest{Topic: m.name, Timeout: patience}
		for _, partition := range answer.Topics[0].Partitions {
			order.Assignments = append(order.Assignments, kafka.AlterPartitionReassignmentsRequestAssignment{
				PartitionID: partition.ID, BrokerIDs: []int{m.leader, 3 - m.leader},
			})
			election.Partitions = append(election.Partitions, partition.ID)
		}
		altered, err := client.AlterPartitionReassignments(ctx, &order)
		require.NoError(t, err)
		require.NoError(t, altered.Error)
		elected, err := client.ElectLeaders(ctx, &election)
		require.NoError(t, err)
		require.NoError(t, elected.Error)
	})
	m.awaitLed(t)
}

// awaitLed waits until the broker that shall lead does, with both replicas in sync.
func (m *movingTopic) awaitLed(t *testing.T) {
	t.Helper()
	m.administer(t, func(ctx context.Context, client *kafka.Client) {
		require.Eventually(t, func() bool {
			answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{m.name}})
			if err != nil || answer.Topics[0].Error != nil {
				return false
			}
			for _, partition := range answer.Topics[0].Partitions {
				if partition.Leader.ID != m.leader || len(partition.Isr) != 2 {
					return false
				}
			}
			return true
		}, patience, 10*time.Millisecond)
	})
}

// TestMovingLeaders has two brokers with a replica each, and moves the leaders of all
// partitions under load. A request that waits for its replicas when its leader goes is
// answered by the same code as one that was refused, and may be stored.
func TestMovingLeaders(t *testing.T) {
	t.Parallel()
	topic := newMovingTopic(t, partitions)
	// An even number: the first broker, which is read, leads in the end.
	moves := slices.Repeat([]func(){func() { topic.move(t) }}, 12)
	sinktest.MovingLeaders(t, topic, topic.name, sinktest.Options{}, moves...)
}
