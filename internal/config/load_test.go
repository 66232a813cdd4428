package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const minimal = `
queues: {orders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:4222"}}
`

func TestDefaults(t *testing.T) {
	t.Parallel()
	config, err := Parse([]byte(minimal), nil)
	require.NoError(t, err)
	assert.Regexp(t, `^[A-Za-z0-9._-]+-[a-z0-9]{6}$`, config.Instance)
	config.Instance = ""
	assert.Equal(t, &Config{
		Redis: Redis{Mode: Standalone, URL: "redis://127.0.0.1:6379/0", DialTimeout: 2 * time.Second, Timeout: 2 * time.Second},
		Queues: map[string]Queue{"orders": {
			Shards: 8, Sink: "events", ParkPatience: 24 * time.Hour, Late: Late{Then: "publish"}, History: History{Age: 24 * time.Hour}, Budget: Budget{Policy: BudgetRefuse}, MaxMessage: message.DefaultMaxSize, Headers: FullHeaders, Durability: Memory,
			Retry:  Retry{Initial: time.Second, Max: 10 * time.Minute, Attempts: 25},
			Canary: Canary{Every: 30 * time.Second},
		}},
		Sinks:        map[string]Sink{"events": {Type: message.NATS, PublishTimeout: 10 * time.Second, Kinds: Kinds{NATS: nats.Config{URL: "nats://127.0.0.1:4222"}}}},
		Admin:        Admin{Listen: "127.0.0.1:8080"},
		Poller:       Poller{Batch: 500, InFlight: 4, ClaimTimeout: time.Minute, MaxSleep: 2 * time.Second, Lease: 5 * time.Second},
		Log:          Log{Level: "info", Format: "auto"},
		Prefix:       "delay",
		DrainTimeout: 20 * time.Second,
	}, config)
}

func TestTwoInstancesDiffer(t *testing.T) {
	t.Parallel()
	one, err := Parse([]byte(minimal), nil)
	require.NoError(t, err)
	other, err := Parse([]byte(minimal), nil)
	require.NoError(t, err)
	assert.NotEqual(t, one.Instance, other.Instance)
}

const everything = `
redis:
  mode: sentinel
  master: mymaster
  sentinels: ["a:26379", "b:26379"]
  username: bridge
  password: pa$$word
  sentinel_password: other
  tls: {server_name: redis.example.com, insecure_skip_verify: true}
  dial_timeout: 500ms
queues:
  orders: {shards: "16", sink: k, retry: {initial: 1m, max: 1d12h, attempts: 3}, max_message: 1MiB}
  mails: {sink: r, max_message: 1000}
sinks:
  k: {type: kafka, brokers: ["a:9092", "b:9092"], sasl: {mechanism: scram-sha-512, username: u, password: 007}, tls: {}}
  r: {type: rabbitmq, url: "amqps://a, amqps://b", exchange: x, connections: 2}
  n: {type: nats, url: "nats://a:4222,b:4222", user: u, password: p}
admin: {listen: ":0", probes: "0.0.0.0:8081"}
prefix: team:delay
instance: one
`

func TestEveryKindOfValue(t *testing.T) {
	t.Parallel()
	config, err := Parse([]byte(everything), nil)
	require.NoError(t, err)
	redis := config.Redis
	assert.Equal(t, Sentinel, redis.Mode)
	assert.Empty(t, redis.URL)
	assert.Equal(t, []string{"a:26379", "b:26379"}, redis.Sentinels)
	assert.Equal(t, "pa$word", reveal(t, redis.Password))
	assert.Equal(t, "other", reveal(t, redis.SentinelPassword))
	assert.Equal(t, &tlsclient.Files{ServerName: "redis.example.com", InsecureSkipVerify: true}, redis.TLS)
	assert.Equal(t, 500*time.Millisecond, redis.DialTimeout)
	orders := config.Queues["orders"]
	assert.Equal(t, 16, orders.Shards)
	assert.Equal(t, Retry{Initial: time.Minute, Max: 36 * time.Hour, Attempts: 3}, orders.Retry)
	assert.Equal(t, Size(1<<20), orders.MaxMessage)
	assert.Equal(t, Size(1000), config.Queues["mails"].MaxMessage)
	kafka := config.Sinks["k"]
	assert.Equal(t, "scram-sha-512", kafka.Kafka.SASL.Mechanism)
	assert.Equal(t, "007", reveal(t, kafka.Kafka.SASL.Password))
	assert.NotNil(t, kafka.TLS)
	assert.Zero(t, kafka.RabbitMQ.Connections, "a default of another type")
	assert.Equal(t, []string{"amqps://a", "amqps://b"}, kind.SplitURLs(config.Sinks["r"].RabbitMQ.URL))
	assert.Equal(t, "nats://a:4222,b:4222", config.Sinks["n"].NATS.URL)
	assert.Nil(t, config.Sinks["n"].TLS)
}

func reveal(t *testing.T, s secret.Secret) string {
	t.Helper()
	value, err := s.Reveal()
	require.NoError(t, err)
	return value
}

func TestAliases(t *testing.T) {
	t.Parallel()
	config, err := Parse([]byte(`
queues:
  a: {sink: s, retry: &r {attempts: 7}}
  b: {sink: s, retry: *r}
sinks: {s: {type: kafka, brokers: ["a:1"]}}
`), nil)
	require.NoError(t, err)
	assert.Equal(t, 7, config.Queues["b"].Retry.Attempts)
}

func TestExpand(t *testing.T) {
	t.Parallel()
	e := expander{
		env: map[string]string{"NAME": "value", "EMPTY": "", "NESTED": "${NAME}"},
		readFile: func(path string) ([]byte, error) {
			if path == "/secret" {
				return []byte("from a file\r\n"), nil
			}
			return nil, os.ErrNotExist
		},
	}
	for text, want := range map[string]string{
		"plain":                   "plain",
		"${NAME}":                 "value",
		"a${NAME}b${NAME}c":       "avaluebvaluec",
		"${EMPTY}":                "",
		"${NESTED}":               "${NAME}",
		"${file:/secret}":         "from a file",
		"$$":                      "$",
		"$${NAME}":                "${NAME}",
		"a$b$":                    "a$b$",
		"$$$$":                    "$$",
		"redis://:${NAME}@host/0": "redis://:value@host/0",
	} {
		got, err := e.expand(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"${UNSET}":        "environment variable UNSET is not set",
		"${file:/no}":     "${file:/no}: file does not exist",
		"${NAME":          "has no closing brace",
		"${}":             "names no variable",
		"${NAME:-x}":      "names no variable",
		"${file:}":        "file does not exist",
		"ok ${NAME} ${1}": "names no variable",
	} {
		_, err := e.expand(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestSecretFromFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("first\n"), 0o600))
	config, err := Parse([]byte(minimal+"redis: {password_file: "+path+"}\n"), nil)
	require.NoError(t, err)
	assert.Equal(t, "first", reveal(t, config.Redis.Password))
	require.NoError(t, os.WriteFile(path, []byte("rotated"), 0o600))
	assert.Equal(t, "rotated", reveal(t, config.Redis.Password))
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	_, err := Load(path, nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte(minimal), 0o600))
	config, err := Load(path, []string{"DELAYBRIDGE__PREFIX=other"})
	require.NoError(t, err)
	assert.Equal(t, "other", config.Prefix)

	_, err = Load(path, []string{"DELAYBRIDGE__PREFIX="})
	require.ErrorContains(t, err, "load "+path+": env DELAYBRIDGE__PREFIX: prefix: ")
	var problem *Problem
	require.ErrorAs(t, err, &problem)
	assert.Equal(t, "prefix", problem.Key)

	require.NoError(t, os.WriteFile(path, make([]byte, maxFile+1), 0o600))
	_, err = Load(path, nil)
	assert.ErrorContains(t, err, "more than 1048576 bytes")
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "1d": day, "2w": 14 * day,
		"1w1d1h": 8*day + time.Hour, "1.5d": 36 * time.Hour, "-1d": -day, "0": 0, "1d500ms": day + 500*time.Millisecond,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "5", "d", "1d5", "5x", "1 d", "99999999w", "1e9d", ".d", "106751d24h", "1d-2h", "d1"} {
		_, err := ParseDuration(text)
		assert.ErrorIs(t, err, errDuration, text)
	}
	for d, want := range map[time.Duration]string{
		time.Minute: "60s", 10 * time.Minute: "10m", 2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 1500 * time.Millisecond: "1.5s",
		10*time.Minute + time.Second: "10m1s", time.Hour + time.Second: "1h0m1s",
	} {
		assert.Equal(t, want, formatDuration(d))
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"1": 1, "960KiB": 960 << 10, "1 MiB": 1 << 20, "64GiB": 64 << 30, "1MB": 1e6, "10kB": 1e4, "5B": 5, "-1": -1} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "KiB", "1.5MiB", "1TiB", "9999999999GiB", "one", "1 0"} {
		_, err := ParseSize(text)
		assert.Error(t, err, text)
	}
	for size, want := range map[Size]string{0: "0", 1: "1", 960 << 10: "960KiB", 1 << 20: "1MiB", 1e6: "1000000"} {
		assert.Equal(t, want, size.String())
	}
}

func TestParseShift(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"1h": time.Hour, "+1d": 24 * time.Hour, "-90m": -90 * time.Minute, "-0s": 0} {
		got, err := ParseShift(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-", "+", "--1h", "-+1h", "+-1h", "++1h", "-soon", "1h-"} {
		_, err := ParseShift(text)
		require.Error(t, err, text)
	}
}

// TestKinds: each kind of broker whose topics are known is in the list, and no other.
func TestKinds(t *testing.T) {
	t.Parallel()
	var listed []message.SinkType
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Kinds]()) {
		sink := Sink{Type: message.SinkType(f.Tag.Get("only")), PublishTimeout: time.Minute}
		assert.Equal(t, f.Type, reflect.TypeOf(sink.Settings("x")))
		listed = append(listed, sink.Type)
	}
	slices.Sort(listed)
	assert.Equal(t, message.SinkTypes(), listed)
	assert.Nil(t, Sink{Type: "mqtt"}.Settings(""))
}
