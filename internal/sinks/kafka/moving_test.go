package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
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

// told is what a writer was told of its messages, by id.
type told map[string]sinks.Outcome

// write publishes messages of ten Keys of its own, one batch after the other, until it is
// stopped. Each message is published once, and its body is its place among the writer's.
func (m *movingTopic) write(t *testing.T, sink *Sink, writer int, published func(int), stop <-chan struct{}) told {
	t.Helper()
	const each = 100
	all := told{}
	for number := 0; ; number++ {
		select {
		case <-stop:
			return all
		default:
		}
		batch := newMessages(t, m.name, "", each)
		for i := range batch {
			batch[i].Key = fmt.Sprintf("key-%d-%d", writer, i%10)
			batch[i].Body = []byte(strconv.Itoa(number*each + i))
		}
		for i, outcome := range publish(t, sink, batch...) {
			all[batch[i].ID] = outcome
		}
		published(each)
	}
}

// TestMovingLeaders has two brokers with a replica each, and moves the leaders of all
// partitions under load (I3, I11, I15). What the producers are told is held against what is
// stored: a request that waits for its replicas when its leader goes is answered by the same
// code as one that was refused, and may be stored.
func TestMovingLeaders(t *testing.T) {
	t.Parallel()
	const (
		moves   = 12
		writers = 8
		between = 4000 // messages that are published between two moves
	)
	topic := newMovingTopic(t, partitions)
	sink := newSink(t, topic.config)
	var (
		writing sync.WaitGroup
		done    atomic.Int64
		stop    = make(chan struct{})
		all     [writers]told
	)
	for writer := range writers {
		writing.Go(func() { all[writer] = topic.write(t, sink, writer, func(n int) { done.Add(int64(n)) }, stop) })
	}
	for range moves { // An even number: the first broker, which is read, leads in the end.
		from := done.Load()
		require.Eventually(t, func() bool { return done.Load() >= from+between }, patience, time.Millisecond)
		topic.move(t)
	}
	close(stop)
	writing.Wait()
	topic.check(t, sink, all[:])
}

// check holds what was told against what is stored.
func (m *movingTopic) check(t *testing.T, sink *Sink, all []told) {
	t.Helper()
	copies := m.countCopies(t, sink)
	counts, stored, wrong := map[sinks.Class]int{}, 0, map[string]int{}
	for _, writer := range all {
		for id, outcome := range writer {
			counts[outcome.Class]++
			least, most := 0, 0
			switch outcome.Class {
			case sinks.Acknowledged:
				least, most = 1, 1
			case sinks.Unknown:
				most = 1
				stored += copies[id]
			default:
			}
			if copies[id] < least || copies[id] > most {
				wrong[fmt.Sprintf("%s, and stored %d times: %v", outcome.Class, copies[id], outcome.Err)]++
			}
		}
	}
	t.Logf("%v, of the unknown %d stored", counts, stored)
	require.Empty(t, wrong)
}

// countCopies reads how often each message is stored, and whether those of a Key are in order.
func (m *movingTopic) countCopies(t *testing.T, sink *Sink) map[string]int {
	t.Helper()
	// A new leader shows what it has when its follower has told how far it is, as for
	// something that it has acknowledged.
	require.Eventually(t, func() bool {
		last := newMessages(t, m.name, "", 20*partitions)
		for i := range last {
			last[i].Key, last[i].Body = last[i].ID, []byte("0")
		}
		return !slices.ContainsFunc(publish(t, sink, last...), func(o sinks.Outcome) bool { return o.Class != sinks.Acknowledged })
	}, patience, time.Millisecond)
	copies, next := map[string]int{}, map[string]int{}
	for _, records := range m.readAll(t, m.name, 0) {
		for _, record := range records {
			id := record.Headers[message.HeaderID]
			copies[id]++
			place, err := strconv.Atoi(string(record.Body))
			require.NoError(t, err)
			if copies[id] == 1 {
				require.GreaterOrEqual(t, place, next[record.Key], "order of Key %s", record.Key)
				next[record.Key] = place + 1
			}
		}
	}
	return copies
}
