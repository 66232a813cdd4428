package grants_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/grants"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds how long a test waits for what must happen.
const soon = 2 * time.Minute

// compensations is the topic of the compensation messages in these tests.
const compensations = "delay.compensation.orders"

// configure is a bridge with one queue for the topics order.*.
func configure(t *testing.T, sink string) *config.Config {
	t.Helper()
	return configureFor(t, "order.*", compensations, sink)
}

func configureFor(t *testing.T, topics, compensated, sink string) *config.Config {
	t.Helper()
	return parse(t, `
prefix: %s
redis: {url: %q}
queues: {orders: {shards: 1, sink: events, topics: [%q], compensation: %s}}
sinks: {events: %s}
admin: {listen: ""}
drain_timeout: 2s
`, testenv.Name(t, "p"), testenv.Redis(t), topics, compensated, sink)
}

// live runs a bridge until the test ends, and has a message due.
func live(t *testing.T, cfg *config.Config) *testenv.Log {
	t.Helper()
	logs := &testenv.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, cfg, slog.New(slog.NewTextHandler(io.MultiWriter(logs, t.Output()), nil)))
	}()
	rdb, err := cfg.Redis.Open("producer")
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
		assert.NoError(t, rdb.Close())
	})
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(cfg.Prefix))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := client.Schedule(t.Context(), delay.Message{ID: "due", Topic: strings.Replace(cfg.Queues["orders"].Topics[0], "*", "timeout", 1)}, delay.After(0))
		return err == nil
	}, soon, 20*time.Millisecond)
	return logs
}

// natsRights is how many subjects the bridge needs in these tests.
const natsRights = 10

// TestNATS: with its rights the bridge publishes, and consumes compensation messages;
// without any one of them the server refuses it that.
func TestNATS(t *testing.T) {
	t.Parallel()
	for n := range natsRights + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			cfg := configure(t, `{type: nats, url: "nats://127.0.0.1:1", user: bridge, password: PASSWORD}`)
			user := strings.Join(slices.DeleteFunc(grants.Lines(cfg, "events"), isRemark), "\n")
			subjects := regexp.MustCompile(`"[^"]*"`).FindAllString(user, -1)
			require.Len(t, subjects, natsRights)
			if n == 0 {
				server, js := startNATS(t, cfg, user)
				for _, stream := range []string{"orders", strings.ReplaceAll(source.DeadTopic(compensations), ".", "-")} {
					require.Eventually(t, func() bool { return stored(t, js, stream) == 1 }, soon, 20*time.Millisecond, stream)
				}
				assert.NotContains(t, server.Log(), "Violation")
				return
			}
			left := subjects[n-1]
			server, _ := startNATS(t, cfg, strings.Replace(user, left, `"none.of.these"`, 1))
			refused := "Subject " + strings.TrimRight(left, `>"`)
			require.Eventually(t, func() bool { return strings.Contains(server.Log(), refused) }, soon, 20*time.Millisecond, refused)
		})
	}
}

// isRemark reports whether a line is for people.
func isRemark(line string) bool { return strings.HasPrefix(line, "#") }

// startNATS starts a server where the bridge has these rights, and the bridge, and has a
// message among its compensations that can never be done.
func startNATS(t *testing.T, cfg *config.Config, user string) (*testenv.Server, jetstream.JetStream) {
	t.Helper()
	server := testenv.StartNATS(t, "authorization: {users: [{user: root, password: root}, "+user+"]}")
	nc, err := nats.Connect(server.URL(), nats.UserInfo("root", "root"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"order.>"}})
	require.NoError(t, err)
	sink := cfg.Sinks["events"]
	sink.NATS.URL = server.URL()
	cfg.Sinks["events"] = sink
	live(t, cfg)
	require.Eventually(t, func() bool {
		_, err := js.Publish(t.Context(), compensations, []byte("nothing that can be read"))
		return err == nil || strings.Contains(server.Log(), "Violation")
	}, soon, 100*time.Millisecond)
	return server, js
}

// stored is how many messages the stream has; none where it is missing.
func stored(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		return 0
	}
	return s.CachedInfo().State.Msgs
}

// TestRabbitMQ is TestNATS on RabbitMQ: a virtual host for all rights, and one for each
// of the three that is left out.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	const exchange = "amq.topic"
	lines := grants.Lines(configure(t, `{type: rabbitmq, url: "amqp://r", exchange: amq.topic}`), "events")
	words := regexp.MustCompile(`^rabbitmqctl set_permissions .* '([^']*)' '([^']*)' '([^']*)'$`).FindStringSubmatch(lines[0])
	require.NotNil(t, words, lines[0])
	configured, write, read := words[1], words[2], words[3]
	quote := func(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }
	rights := map[string][3]string{
		"all": {configured, write, read}, "no-configure": {"", write, read}, "no-write": {configured, "", read}, "no-read": {configured, write, ""},
	}
	var hosts, permissions []string
	for host, r := range rights {
		hosts = append(hosts, fmt.Sprintf(`{"name": %q}`, host))
		permissions = append(permissions,
			fmt.Sprintf(`{"user": "guest", "vhost": %q, "configure": ".*", "write": ".*", "read": ".*"}`, host),
			fmt.Sprintf(`{"user": "bridge", "vhost": %q, "configure": "%s", "write": "%s", "read": "%s"}`, host, quote(r[0]), quote(r[1]), quote(r[2])))
	}
	file := filepath.Join(t.TempDir(), "definitions.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"vhosts": [{"name": "/"}, %s],
		"users": [{"name": "guest", "password": "guest", "tags": "administrator"}, {"name": "bridge", "password": "PASSWORD", "tags": ""}],
		"permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}, %s]}`,
		strings.Join(hosts, ", "), strings.Join(permissions, ", ")), 0o600))
	server := testenv.StartRabbitMQ(t, "load_definitions = "+file+"\n")
	for host := range rights {
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.Path = "/" + host
		root, err := amqp.Dial(u.String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = root.Close() })
		channel, err := root.Channel()
		require.NoError(t, err)
		for _, queue := range []string{"order.timeout", compensations} {
			_, err = channel.QueueDeclare(queue, true, false, false, false, nil)
			require.NoError(t, err)
		}
		require.NoError(t, channel.QueueBind("order.timeout", "order.timeout", exchange, false, nil))
		require.NoError(t, channel.PublishWithContext(t.Context(), "", compensations, false, false, amqp.Publishing{Body: []byte("nothing that can be read")}))
		u.User = url.UserPassword("bridge", "PASSWORD")
		live(t, configure(t, fmt.Sprintf("{type: rabbitmq, url: %q, exchange: %s}", u, exchange)))
		refused := func() bool {
			return strings.Contains(server.Log(), "in vhost '"+host+"' refused for user 'bridge'")
		}
		if host != "all" {
			assert.Eventually(t, refused, soon, 50*time.Millisecond, host)
			continue
		}
		for _, queue := range []string{"order.timeout", source.DeadTopic(compensations)} {
			assert.Eventually(t, func() bool { return waiting(t, root, queue) == 1 }, soon, 100*time.Millisecond, queue)
		}
		assert.False(t, refused())
	}
}

// waiting is how many messages the queue has; none where it is missing.
func waiting(t *testing.T, conn *amqp.Connection, queue string) int {
	t.Helper()
	channel, err := conn.Channel()
	require.NoError(t, err)
	defer func() { _ = channel.Close() }() // A queue that is missing has closed it.
	q, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return 0
	}
	return q.Messages
}

// TestRedis: with its rights the bridge publishes to streams, and consumes compensation
// messages; without any one of them the server refuses it that.
func TestRedis(t *testing.T) {
	t.Parallel()
	const offer = `{type: redis, url: "redis://127.0.0.1:1", user: bridge, password: PASSWORD}`
	used := []string{
		"xadd", "ping", "client|setname", "exists", "xgroup|create", "xinfo|consumers", "xreadgroup", "xautoclaim", "xack", "xdel", "multi", "exec",
	}
	for _, left := range append(used, "") {
		t.Run("without "+left, func(t *testing.T) {
			t.Parallel()
			cfg := configure(t, offer)
			lines := grants.Lines(cfg, "events")
			require.Len(t, lines, 1)
			server := testenv.StartRedis(t)
			root := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { assert.NoError(t, root.Close()) })
			var command []any
			for _, word := range strings.Fields(lines[0])[1:] { // No word has a space.
				if word = strings.Trim(word, "'"); word != "+"+left {
					command = append(command, word)
				}
			}
			require.NoError(t, root.Do(t.Context(), command...).Err())
			const stream = "order.timeout"
			require.NoError(t, root.XGroupCreateMkStream(t.Context(), stream, "billing", "$").Err())
			require.NoError(t, root.XAdd(t.Context(), &redis.XAddArgs{Stream: compensations, Values: []string{"body", "nothing that can be read"}}).Err())
			sink := cfg.Sinks["events"]
			sink.Redis.URL = "redis://" + server.Addr()
			cfg.Sinks["events"] = sink
			live(t, cfg)
			if left == "" {
				for _, name := range []string{stream, source.DeadTopic(compensations)} {
					require.Eventually(t, func() bool { return root.XLen(t.Context(), name).Val() == 1 }, soon, 20*time.Millisecond, name)
				}
				require.Eventually(t, func() bool { return root.XLen(t.Context(), compensations).Val() == 0 }, soon, 20*time.Millisecond)
				assert.Empty(t, root.ACLLog(t.Context(), 10).Val())
				return
			}
			require.Eventually(t, func() bool {
				return slices.ContainsFunc(root.ACLLog(t.Context(), 10).Val(), func(e *redis.ACLLogEntry) bool { return e.Object == left })
			}, soon, 20*time.Millisecond)
		})
	}
}
