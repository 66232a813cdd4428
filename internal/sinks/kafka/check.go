package kafka

import (
	"context"
	"fmt"
	"math/bits"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// mostBrokers is how many of a cluster's brokers are tried by their own addresses.
const mostBrokers = 32

// settingsRead are the topic's settings that matter to us; brokers leave out those
// that they do not know.
var settingsRead = []string{
	"min.insync.replicas", "max.message.bytes", "cleanup.policy", "unclean.leader.election.enable",
	"message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms",
}

// Check implements [sinks.Checker].
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) []check.Finding {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	conn, ok, findings := sinks.FirstThatAnswers(s.config.Brokers,
		func(address string) (*conn, error) { return s.brokers.opener.open(ctx, address) }, (*conn).close, unanswered)
	if !ok {
		return findings
	}
	defer conn.close()
	answer, err := conn.RoundTrip(ctx, nil, &metadata.Request{
		TopicNames: append([]string{}, plan.Topics...), IncludeTopicAuthorizedOperations: true,
	})
	cluster, ok := answer.(*metadata.Response)
	if err != nil || !ok {
		return append(findings, unanswered(conn.address, fmt.Errorf("ask for topics: %w", err)))
	}
	findings = append(findings, s.advertised(ctx, cluster)...)
	about := s.describe(ctx, conn, cluster)
	if about.problem != nil {
		findings = append(findings, hiddenSettings(about.problem))
	}
	for i := range cluster.Topics {
		findings = append(findings, judgeTopic(&cluster.Topics[i], about, len(cluster.Brokers), plan)...)
	}
	tools := strings.NewReplacer("kafka-topics ", "kafka-topics --bootstrap-server "+conn.address+" ",
		"kafka-configs ", "kafka-configs --bootstrap-server "+conn.address+" ", "kafka-acls ", "kafka-acls --bootstrap-server "+conn.address+" ")
	for i := range findings {
		findings[i].Remedy = tools.Replace(findings[i].Remedy)
	}
	return findings
}

// advertised tries the brokers by the addresses that they give themselves: that is
// where messages are published, whatever the configuration names.
func (s *Sink) advertised(ctx context.Context, cluster *metadata.Response) []check.Finding {
	var findings []check.Finding
	for _, broker := range cluster.Brokers[:min(len(cluster.Brokers), mostBrokers)] {
		address := brokerAddress(&broker)
		c, err := s.brokers.opener.open(ctx, address)
		if err == nil {
			c.close()
			continue
		}
		findings = append(findings, check.Finding{
			Level: check.Error, Code: "kafka_advertised", Subject: address,
			What:   fmt.Sprintf("broker %d advertises %s, and cannot be reached there: %v", broker.NodeID, address, err),
			Why:    "messages of the partitions that it leads wait",
			Remedy: "set its advertised.listeners to an address that this machine reaches, or start it",
		})
	}
	return findings
}

// settings are what the brokers report of their configuration.
type settings struct {
	topics map[string]map[string]string
	// creates says that brokers make a topic that a client asks for.
	creates bool
	problem error
}

// describe asks for the settings of the topics, and of one broker.
func (s *Sink) describe(ctx context.Context, conn *conn, cluster *metadata.Response) settings {
	about := settings{topics: map[string]map[string]string{}}
	request := &kafka.DescribeConfigsRequest{}
	for _, topic := range cluster.Topics {
		if topic.ErrorCode == 0 {
			request.Resources = append(request.Resources, kafka.DescribeConfigRequestResource{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic.Name, ConfigNames: settingsRead,
			})
		}
	}
	if len(request.Resources) > 0 {
		about.read(conn.client.DescribeConfigs(ctx, request))
	}
	if len(cluster.Brokers) == 0 {
		return about
	}
	own, err := s.brokers.opener.open(ctx, brokerAddress(&cluster.Brokers[0])) // A broker tells its own only.
	if err != nil {
		return about
	}
	defer own.close()
	answer, err := own.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeBroker, ResourceName: strconv.Itoa(int(cluster.Brokers[0].NodeID)),
		ConfigNames: []string{"auto.create.topics.enable"},
	}}})
	if err != nil {
		return about
	}
	for _, resource := range answer.Resources {
		about.creates = about.creates || valuesOf(resource)["auto.create.topics.enable"] == "true"
	}
	return about
}

func (a *settings) read(answer *kafka.DescribeConfigsResponse, err error) {
	if err != nil {
		a.problem = err
		return
	}
	for _, resource := range answer.Resources {
		if resource.Error != nil {
			a.problem = fmt.Errorf("topic %s: %w", resource.ResourceName, resource.Error)
			continue
		}
		a.topics[resource.ResourceName] = valuesOf(resource)
	}
}

func valuesOf(resource kafka.DescribeConfigResponseResource) map[string]string {
	values := map[string]string{}
	for _, entry := range resource.ConfigEntries {
		values[entry.ConfigName] = entry.ConfigValue
	}
	return values
}

func brokerAddress(b *metadata.ResponseBroker) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

func hiddenSettings(err error) check.Finding {
	return check.Finding{
		Level: check.Note, Code: "kafka_hidden",
		What:   fmt.Sprintf("the settings of topics could not be read: %v", err),
		Why:    "min.insync.replicas, size limits and cleanup decide which messages are lost or refused",
		Remedy: "kafka-acls --add --allow-principal User:NAME --operation DescribeConfigs --topic TOPIC, for the time of the check",
	}
}

// unanswered is the finding of a broker that does not answer, or refuses us.
func unanswered(address string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "kafka_unreachable", Subject: address,
		What:   err.Error(),
		Why:    "nothing is published to this cluster until a broker answers; messages wait",
		Remedy: "correct sinks.*.brokers, or start the broker",
	}
	if judge(err).reason == sinks.ReasonAuth {
		f.Code, f.Remedy = "kafka_login", "correct sinks.*.sasl (mechanism, username, password) and sinks.*.tls: the listener's protocol must be the same"
	}
	return f
}

// mayWrite reads the operations that the broker allows us on a topic: known is
// false if it does not tell.
func mayWrite(topic *metadata.ResponseTopic) (may, known bool) {
	const write = 4 // AclOperation.WRITE
	operations := uint32(topic.TopicAuthorizedOperations)
	return operations&(1<<write) != 0, operations != 1<<31 && bits.OnesCount32(operations) > 0
}

// milliseconds is a setting that is a duration; ok is false if there is none.
func milliseconds(values map[string]string, name string) (d time.Duration, ok bool) {
	ms, err := strconv.ParseInt(values[name], 10, 64)
	if err != nil || ms > int64(time.Duration(1<<63-1)/time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}
