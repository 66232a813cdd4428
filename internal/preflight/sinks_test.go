package preflight_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// sinkOnly has no Redis: a sink is looked at all the same.
const sinkOnly = "redis: {url: \"redis://127.0.0.1:1\"}\nqueues: {orders: {sink: s}}\nsinks: {s: %s}\nadmin: {listen: \"\"}\n"

// lookAt checks one sink.
func lookAt(t *testing.T, kind, settings string, topics ...string) []check.Finding {
	t.Helper()
	return look(t, kind, topics, sinkOnly, "{type: "+kind+", "+settings+"}")
}

func natsClient(t *testing.T, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func TestNATS(t *testing.T) {
	t.Parallel()
	url := testenv.NATS(t)
	js := natsClient(t, url)
	const alone = "warning nats_replicas" // One server has one replica.
	for name, c := range map[string]struct {
		spoil func(*jetstream.StreamConfig)
		codes []string
	}{
		"sound":             {func(*jetstream.StreamConfig) {}, []string{alone}},
		"memory":            {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, []string{alone, "warning nats_storage"}},
		"duplicate window":  {func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, []string{"warning nats_duplicates", alone}},
		"message size":      {func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }, []string{"warning nats_message_size", alone}},
		"no ack":            {func(c *jetstream.StreamConfig) { c.NoAck = true }, []string{"error nats_no_ack", alone}},
		"full":              {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 3, jetstream.DiscardNew }, []string{"error nats_full", alone}},
		"queue that drops":  {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Retention = 9, jetstream.WorkQueuePolicy }, []string{"warning nats_discard", alone}},
		"nobody interested": {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, []string{"warning nats_interest", alone}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subject := testenv.Name(t, "check")
			config := jetstream.StreamConfig{Name: subject, Subjects: []string{subject + ".>"}, Storage: jetstream.FileStorage}
			c.spoil(&config)
			stream, err := js.CreateStream(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(func() { _ = js.DeleteStream(t.Context(), subject) })
			if name == "full" {
				for range 3 {
					_, err := js.Publish(t.Context(), subject+".a", []byte("x"))
					require.NoError(t, err)
				}
			}
			findings := lookAt(t, "nats", fmt.Sprintf("url: %q", url), subject+".a", subject+".b")
			slices.Sort(c.codes)
			require.Equal(t, c.codes, codes(findings), "%+v", findings)
			for _, f := range findings {
				assert.Contains(t, f.Subject, "stream "+subject)
			}
			info, err := stream.Info(t.Context())
			require.NoError(t, err)
			assert.LessOrEqual(t, info.State.Msgs, uint64(3), "nothing is published")
		})
	}
	missing := testenv.Name(t, "missing")
	findings := lookAt(t, "nats", fmt.Sprintf("url: %q", url), missing)
	require.Equal(t, []string{"error nats_stream"}, codes(findings))
	assert.Contains(t, findings[0].Remedy, missing)
	require.Equal(t, []string{"note sink_topics"}, codes(lookAt(t, "nats", fmt.Sprintf("url: %q", url))))
	require.Equal(t, []string{"error nats_unreachable"}, codes(lookAt(t, "nats", `url: "nats://127.0.0.1:1"`, missing)))
	require.Equal(t, []string{"error nats_stream", "warning nats_unreachable"},
		codes(lookAt(t, "nats", fmt.Sprintf("url: %q", url+",nats://127.0.0.1:1"), missing)))
}

// TestNATSRights has users who may do only a part.
func TestNATSRights(t *testing.T) {
	t.Parallel()
	s := testenv.StartNATS(t, `max_payload: 500KB
authorization { users: [
  {user: all, password: p},
  {user: publisher, password: p, permissions: {publish: {allow: ["orders.paid", "$JS.API.>", "$SYS.REQ.USER.INFO"]}}},
  {user: blind, password: p, permissions: {publish: {allow: ["orders.>"]}}},
] }`)
	js := natsClient(t, s.URL(), nats.UserInfo("all", "p"))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	require.NoError(t, err)
	as := func(user, password string) []string {
		settings := fmt.Sprintf("url: %q, user: %s, password: %s", s.URL(), user, password)
		return codes(lookAt(t, "nats", settings, "orders.paid", "orders.late"))
	}
	require.Equal(t, []string{"warning nats_max_payload", "warning nats_replicas"}, as("all", "p"))
	require.Equal(t, []string{"error nats_denied", "warning nats_max_payload", "warning nats_replicas"}, as("publisher", "p"))
	require.Equal(t, []string{"note nats_hidden", "warning nats_max_payload"}, as("blind", "p"))
	require.Equal(t, []string{"error nats_login"}, as("all", "wrong"))
	bare := testenv.StartNATS(t, "accounts: {A: {users: [{user: u, password: p}]}}\nno_auth_user: u")
	require.Equal(t, []string{"error nats_jetstream"}, codes(lookAt(t, "nats", fmt.Sprintf("url: %q", bare.URL()), "orders.paid")))
}

// TestNATSCluster has a stream of three replicas, of which nothing is said.
func TestNATSCluster(t *testing.T) {
	t.Parallel()
	var routes []string
	for range 3 {
		routes = append(routes, "127.0.0.1:"+testenv.Port(t))
	}
	var urls []string
	for i, route := range routes {
		config := fmt.Sprintf("server_name: s%d\ncluster {name: c, listen: %q, routes: [\"nats://%s\"]}\n", i, route, strings.Join(routes, `", "nats://`))
		urls = append(urls, testenv.StartNATS(t, config).URL())
	}
	js := natsClient(t, urls[0])
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, Replicas: 3})
		assert.NoError(c, err)
	}, 2*time.Minute, 100*time.Millisecond)
	settings := fmt.Sprintf("url: %q", strings.Join(urls, ","))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, lookAt(t, "nats", settings, "orders.paid"), "once the replicas follow")
	}, 2*time.Minute, 100*time.Millisecond)
}

func TestKafka(t *testing.T) {
	t.Parallel()
	brokers := testenv.Kafka(t)
	transport := &kafka.Transport{}
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: time.Minute, Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	const alone = "warning kafka_replicas" // One broker has one replica.
	for name, c := range map[string]struct {
		entries map[string]string
		codes   []string
	}{
		"sound":        {nil, []string{alone}},
		"min insync":   {map[string]string{"min.insync.replicas": "2"}, []string{"error kafka_min_insync"}},
		"message size": {map[string]string{"max.message.bytes": "1000"}, []string{"warning kafka_message_size", alone}},
		"compact":      {map[string]string{"cleanup.policy": "compact"}, []string{"warning kafka_compact", alone}},
		"unclean":      {map[string]string{"unclean.leader.election.enable": "true"}, []string{alone, "warning kafka_unclean"}},
		"timestamps":   {map[string]string{"message.timestamp.before.max.ms": "1000"}, []string{alone, "warning kafka_timestamps"}},
		"append time":  {map[string]string{"message.timestamp.before.max.ms": "1000", "message.timestamp.type": "LogAppendTime"}, []string{alone}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := testenv.Name(t, "check")
			config := kafka.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}
			for key, value := range c.entries {
				config.ConfigEntries = append(config.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
			}
			answer, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
			require.NoError(t, errors.Join(err, answer.Errors[topic]))
			slices.Sort(c.codes)
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				assert.Equal(collect, c.codes, codes(lookAt(t, "kafka", list("brokers", brokers), topic)), "once the topic has leaders")
			}, time.Minute, 100*time.Millisecond)
		})
	}
	missing := testenv.Name(t, "missing")
	findings := lookAt(t, "kafka", list("brokers", brokers), missing)
	require.Equal(t, []string{"error kafka_topic"}, codes(findings))
	assert.Contains(t, findings[0].Remedy, "kafka-topics --bootstrap-server "+brokers[0]+" --create --topic "+missing)
	require.Equal(t, []string{"error kafka_topic"}, codes(lookAt(t, "kafka", list("brokers", brokers), missing)), "it was not made")
	require.Equal(t, []string{"error kafka_unreachable"}, codes(lookAt(t, "kafka", `brokers: ["127.0.0.1:1"]`, missing)))
	require.Equal(t, []string{"error kafka_topic", "warning kafka_unreachable"},
		codes(lookAt(t, "kafka", list("brokers", append([]string{"127.0.0.1:1"}, brokers...)), missing)))
}

func list(key string, values []string) string {
	return fmt.Sprintf("%s: [%s]", key, strings.Join(values, ", "))
}

// TestKafkaRights has a broker that knows who may what, and calls itself by a name
// that leads nowhere, too.
func TestKafkaRights(t *testing.T) {
	t.Parallel()
	s := testenv.StartKafka(t, `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.sasl.enabled.mechanisms=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="p" user_admin="p" user_bridge="p";
auto.create.topics.enable=true
`)
	as := func(user, password string, topics ...string) []string {
		settings := fmt.Sprintf("brokers: [%q], sasl: {mechanism: plain, username: %s, password: %s}", s.Addr(), user, password)
		return codes(lookAt(t, "kafka", settings, topics...))
	}
	require.Equal(t, []string{"error kafka_login"}, as("bridge", "wrong", "a"))
	require.Equal(t, []string{"error kafka_login"}, codes(lookAt(t, "kafka", fmt.Sprintf("brokers: [%q], sasl: {mechanism: scram-sha-256, username: a, password: b}", s.Addr()), "a")))
	require.Equal(t, []string{"error kafka_denied"}, as("bridge", "p", "a"))
	require.Equal(t, []string{"error kafka_topic"}, as("admin", "p", "a"))
	require.Equal(t, []string{"error kafka_topic"}, as("admin", "p", "a"), "asking makes no topic")

	transport := &kafka.Transport{SASL: plain.Mechanism{Username: "admin", Password: "p"}}
	t.Cleanup(transport.CloseIdleConnections)
	admin := &kafka.Client{Addr: kafka.TCP(s.Addr()), Timeout: time.Minute, Transport: transport}
	made, err := admin.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: "a", NumPartitions: 1, ReplicationFactor: 1}}})
	require.NoError(t, errors.Join(err, made.Errors["a"]))
	allow := func(operation kafka.ACLOperationType) {
		t.Helper()
		answer, err := admin.CreateACLs(t.Context(), &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: "a", ResourcePatternType: kafka.PatternTypeLiteral,
			Principal: "User:bridge", Host: "*", Operation: operation, PermissionType: kafka.ACLPermissionTypeAllow,
		}}})
		require.NoError(t, errors.Join(append(answer.Errors, err)...))
	}
	expect := func(expected ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, expected, as("bridge", "p", "a")) }, time.Minute, 100*time.Millisecond, "once the broker knows the rule")
	}
	allow(kafka.ACLOperationTypeDescribe)
	expect("error kafka_denied", "note kafka_hidden", "warning kafka_replicas")
	allow(kafka.ACLOperationTypeWrite)
	allow(kafka.ACLOperationTypeDescribeConfigs)
	expect("warning kafka_replicas")
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	port := testenv.Port(t)
	s := testenv.StartRabbitMQ(t, fmt.Sprintf("# plugins: rabbitmq_management\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = %s\n", port))
	conn, err := amqp.Dial(s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	require.NoError(t, err)
	declare := func(name string, durable bool, args amqp.Table) {
		_, err := channel.QueueDeclare(name, durable, false, false, false, args)
		require.NoError(t, err)
	}
	const alone = "warning rabbitmq_members" // One node has one member.
	quorum := func(more amqp.Table) amqp.Table {
		all := amqp.Table{"x-queue-type": "quorum"}
		maps.Copy(all, more)
		return all
	}
	for name, args := range map[string]amqp.Table{
		"quorum": quorum(nil), "dropping": quorum(amqp.Table{"x-max-length": 5}), "ttl": quorum(amqp.Table{"x-message-ttl": 60_000}),
		"expiring": quorum(amqp.Table{"x-expires": 60_000}), "classic": nil,
		"full": {"x-max-length": 1, "x-overflow": "reject-publish"},
	} {
		declare(name, true, args)
	}
	declare("transient", false, nil)
	require.NoError(t, channel.Publish("", "full", false, false, amqp.Publishing{Body: []byte("x")}))
	require.NoError(t, channel.ExchangeDeclare("events", "topic", true, false, false, false, nil))
	require.NoError(t, channel.QueueBind("quorum", "order.*", "events", false, nil))
	management := fmt.Sprintf("url: %q, management: \"http://127.0.0.1:%s\"", s.URL(), port)
	for topic, expected := range map[string][]string{
		"quorum":    {alone},
		"dropping":  {alone, "warning rabbitmq_overflow"},
		"ttl":       {alone, "warning rabbitmq_ttl"},
		"expiring":  {"warning rabbitmq_expires", alone},
		"classic":   {"warning rabbitmq_classic"},
		"transient": {"warning rabbitmq_transient"},
		"full":      {"error rabbitmq_full", "warning rabbitmq_classic"},
		"missing":   {"error rabbitmq_missing"},
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // The API counts messages now and then.
			findings := lookAt(t, "rabbitmq", management, topic)
			assert.Equal(c, expected, codes(findings), "%s: %+v", topic, findings)
		}, 30*time.Second, 100*time.Millisecond)
	}
	require.Equal(t, []string{alone}, codes(lookAt(t, "rabbitmq", management+", exchange: events", "order.timeout")))
	findings := lookAt(t, "rabbitmq", management+", exchange: events", "order.timeout.late")
	require.Equal(t, []string{"error rabbitmq_unbound"}, codes(findings))
	assert.Contains(t, findings[0].Remedy, "routing_key=order.timeout.late")
	require.Equal(t, []string{"error rabbitmq_missing"}, codes(lookAt(t, "rabbitmq", management+", exchange: nowhere", "a")))
	require.Equal(t, []string{"error rabbitmq_missing", "note rabbitmq_hidden"}, codes(lookAt(t, "rabbitmq", fmt.Sprintf("url: %q", s.URL()), "missing", "quorum")))
	require.Equal(t, []string{"error rabbitmq_login"}, codes(lookAt(t, "rabbitmq", fmt.Sprintf("url: %q", "amqp://guest:wrong@"+s.Addr()+"/"), "quorum")))
	require.Equal(t, []string{"error rabbitmq_unreachable"}, codes(lookAt(t, "rabbitmq", `url: "amqp://guest:guest@127.0.0.1:1/"`, "quorum")))
	wrong := fmt.Sprintf("url: %q, management: \"http://guest:wrong@127.0.0.1:%s\"", s.URL(), port)
	require.Equal(t, []string{"warning rabbitmq_management"}, codes(lookAt(t, "rabbitmq", wrong, "quorum")))
}
