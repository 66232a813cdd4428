package grants_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/grants"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// kafkaRights is how many lines the bridge needs in these tests.
const kafkaRights = 6

// TestKafka is TestNATS on Kafka: a user who has all rights, and one for each that is
// left out.
func TestKafka(t *testing.T) {
	t.Parallel()
	users := ""
	for n := range kafkaRights + 1 {
		users += fmt.Sprintf(" user_u%d=\"p\"", n)
	}
	server := testenv.StartKafka(t, `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.sasl.enabled.mechanisms=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="p" user_admin="p"`+users+";\n")
	transport := &kafka.Transport{SASL: plain.Mechanism{Username: "admin", Password: "p"}}
	t.Cleanup(transport.CloseIdleConnections)
	admin := &kafka.Client{Addr: kafka.TCP(server.Addr()), Timeout: time.Minute, Transport: transport}
	for n := range kafkaRights + 1 {
		topic, compensated := fmt.Sprintf("order%d.timeout", n), fmt.Sprint("compensations", n)
		dead := source.DeadTopic(compensated)
		makeTopic(t, admin, topic)
		cfg := configureFor(t, fmt.Sprintf("order%d.*", n), compensated,
			fmt.Sprintf("{type: kafka, brokers: [%q], sasl: {mechanism: plain, username: u%d, password: p}}", server.Addr(), n))
		left := allowAllBut(t, admin, cfg, n-1)
		t.Run(strings.ReplaceAll(left, "/", "-"), func(t *testing.T) {
			logs := live(t, cfg)
			isRefused := func() bool { return strings.Contains(strings.ToLower(logs.String()), "authoriz") }
			require.Eventually(t, func() bool {
				return produce(t.Context(), admin, compensated) || n > 0 && isRefused()
			}, soon, 200*time.Millisecond)
			if n > 0 {
				require.Eventually(t, isRefused, soon, 50*time.Millisecond)
				return
			}
			for _, topic := range []string{topic, dead} {
				require.Eventually(t, func() bool { return offset(t.Context(), admin, topic) > 0 }, soon, 100*time.Millisecond, topic)
			}
			require.False(t, isRefused())
		})
	}
}

// allowAllBut gives the sink's user what the lines say, but for one of them, which it
// returns.
func allowAllBut(t *testing.T, admin *kafka.Client, cfg *config.Config, one int) (left string) {
	t.Helper()
	left = "all"
	n := -1
	for _, line := range grants.Lines(cfg, "events") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if n++; n == one {
			_, left, _ = strings.Cut(line, "--operation ")
			continue
		}
		words := strings.Fields(line)
		entry := kafka.ACLEntry{Host: "*", ResourcePatternType: kafka.PatternTypeLiteral, PermissionType: kafka.ACLPermissionTypeAllow}
		for i, word := range words {
			switch word {
			case "--allow-principal":
				entry.Principal = words[i+1]
			case "--operation":
				require.NoError(t, entry.Operation.UnmarshalText([]byte(words[i+1])))
			case "--topic":
				entry.ResourceType, entry.ResourceName = kafka.ResourceTypeTopic, words[i+1]
			case "--group":
				entry.ResourceType, entry.ResourceName = kafka.ResourceTypeGroup, words[i+1]
			case "--resource-pattern-type":
				require.NoError(t, entry.ResourcePatternType.UnmarshalText([]byte(words[i+1])))
			}
		}
		answer, err := admin.CreateACLs(t.Context(), &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{entry}})
		require.NoError(t, err)
		for _, err := range answer.Errors {
			require.NoError(t, err)
		}
	}
	require.Equal(t, kafkaRights, n+1, "how many lines there are")
	given := kafkaRights
	if one >= 0 {
		given--
	}
	require.Eventually(t, func() bool { return rulesOf(t, admin, cfg.Sinks["events"].Kafka.SASL.Username) == given }, soon, 20*time.Millisecond)
	return left
}

// rulesOf is how many rules the broker knows of a user.
func rulesOf(t *testing.T, admin *kafka.Client, user string) (n int) {
	t.Helper()
	answer, err := admin.DescribeACLs(t.Context(), &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{
		ResourceTypeFilter: kafka.ResourceTypeAny, ResourcePatternTypeFilter: kafka.PatternTypeAny, PrincipalFilter: "User:" + user,
		Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny,
	}})
	require.NoError(t, err)
	require.NoError(t, answer.Error)
	for _, resource := range answer.Resources {
		n += len(resource.ACLs)
	}
	return n
}

func makeTopic(t *testing.T, admin *kafka.Client, topic string) {
	t.Helper()
	made, err := admin.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}})
	require.NoError(t, err)
	require.NoError(t, made.Errors[topic])
}

// produce puts something that cannot be read into a topic's first partition, and reports
// whether that was done.
func produce(ctx context.Context, admin *kafka.Client, topic string) bool {
	answer, err := admin.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("nothing that can be read"))}),
	})
	return err == nil && answer.Error == nil
}

// offset is how much the topic has over all partitions.
func offset(ctx context.Context, admin *kafka.Client, topic string) (sum int64) {
	cluster, err := admin.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0
	}
	for _, t := range cluster.Topics {
		for _, p := range t.Partitions {
			answer, err := admin.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(p.ID)}}})
			if err != nil || len(answer.Topics[topic]) == 0 {
				return 0
			}
			sum += answer.Topics[topic][0].LastOffset
		}
	}
	return sum
}
