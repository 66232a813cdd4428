package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The base has one line for each section, so that a test can count.
const base = `queues: {orders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:4222"}}
`

// want is how the only line of the error must start, and a part of the rest.
type want struct{ place, part string }

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want want
	}{
		"no yaml":         {base + "log: [", want{"line 3: ", "is no valid YAML"}},
		"tab":             {base + "log:\n\tlevel: info", want{"line 4: ", "is no valid YAML"}},
		"bytes":           {base + "log:\n  level: \xff", want{"line 4: ", "not UTF-8"}},
		"two documents":   {base + "---\nlog: {}", want{"line 3: ", "second document"}},
		"a list":          {"[]", want{"line 1: ", "is a list, must be a section"}},
		"a value":         {"# nothing\nyes", want{"line 2: ", "is a single value, must be a section"}},
		"unknown top":     {base + "quues: {}", want{"line 3: quues: ", "unknown key, known are redis, queues, sinks"}},
		"unknown deep":    {base + "poller:\n  batch: 1\n  bacth: 2", want{"line 5: poller.bacth: ", "known are batch, in_flight"}},
		"duplicate":       {base + "log: {}\nprefix: a\nlog: {}", want{"line 5: log: ", "is given twice"}},
		"duplicate name":  {base + "prefix: a\nprefix: b", want{"line 4: prefix: ", "is given twice"}},
		"merge":           {base + "log:\n  <<: {level: info}", want{"line 4: log: ", "merge keys"}},
		"tag":             {base + "log:\n  level: !x info", want{"line 4: log.level: ", "tags are not supported"}},
		"section as key":  {base + "log:\n  {a: b}: c", want{"line 4: log: ", "has a key that is a section"}},
		"list as section": {base + "log: [a]", want{"line 3: log: ", "is a list, must be a section"}},
		"section as text": {base + "prefix: {a: b}", want{"line 3: prefix: ", "is a section, must be a single value"}},
		"list as number":  {base + "poller:\n  batch: [1]", want{"line 4: poller.batch: ", "is a list, must be a single value"}},
		"not a number":    {base + "poller:\n  batch: many", want{"line 4: poller.batch: ", `"many" is not a whole number`}},
		"fraction":        {base + "poller:\n  batch: 1.5", want{"line 4: poller.batch: ", "not a whole number"}},
		"not a duration":  {base + "drain_timeout: 20", want{"line 3: drain_timeout: ", `"20" is not a duration`}},
		"not a bool":      {base + "redis: {tls: {insecure_skip_verify: yes}}", want{"line 3: redis.tls.insecure_skip_verify: ", "not true or false"}},
		"not in enum":     {base + "log: {level: loud}", want{"line 3: log.level: ", `"loud" is not one of debug, info, warn, error`}},
		"negative":        {base + "drain_timeout: -1s", want{"line 3: drain_timeout: ", "too small, allowed are 1ms and more"}},
		"zero duration":   {base + "redis: {timeout: 0s}", want{"line 3: redis.timeout: ", "too small"}},
		"too many":        {base + "poller: {batch: 501}", want{"line 3: poller.batch: ", `"501" is too large, allowed are 1 to 500`}},
		"too few":         {base + "poller: {in_flight: 0}", want{"line 3: poller.in_flight: ", "allowed are 1 to 64"}},
		"unset variable":  {base + "log:\n  level: ${DELAYBRIDGE_NO}", want{"line 4: log.level: ", "variable DELAYBRIDGE_NO is not set"}},
		"unset in a list": {base + "redis: {mode: cluster, addrs: [\n'${X}']}", want{"line 4: redis.addrs[0]: ", "variable X is not set"}},
		"null in a list":  {base + "redis: {mode: cluster, addrs: [\n~]}", want{"line 4: redis.addrs[0]: ", "has no value"}},
		"missing file":    {base + "prefix: ${file:/nonexistent/x}", want{"line 3: prefix: ", "/nonexistent/x: no such file"}},
		"prefix":          {base + "prefix: 'a{b'", want{"line 3: prefix: ", "give letters"}},
		"instance":        {base + "instance: a|b", want{"line 3: instance: ", "give letters"}},
		"listen":          {base + "admin: {listen: '8080'}", want{"line 3: admin.listen: ", "give host:port"}},
		"listen port":     {base + "admin: {listen: ':http'}", want{"line 3: admin.listen: ", "give host:port"}},
		"same listener":   {base + "admin: {probes: '127.0.0.1:8080'}", want{"line 3: admin.probes: ", "is the address of admin.listen"}},
		"lease":           {base + "poller:\n  lease: 3s", want{"line 3: poller.max_sleep: ", "2s is too long, at most half of poller.lease (3s)"}},
		"max_sleep":       {base + "poller:\n  max_sleep: 3s", want{"line 4: poller.max_sleep: ", "at most half of poller.lease (5s)"}},
		"claim_timeout":   {base + "poller:\n  claim_timeout: 15s", want{"line 4: poller.claim_timeout: ", "sink events is 10s, at most a third of poller.claim_timeout (15s)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(test.text), nil)
			assertOnly(t, err, test.want)
		})
	}
}

func assertOnly(t *testing.T, err error, want want) {
	t.Helper()
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "\n", "more than one problem")
	assert.True(t, strings.HasPrefix(err.Error(), want.place), "%s\ndoes not start with %s", err, want.place)
	assert.Contains(t, err.Error(), want.part)
}

func TestQueueAndSinkErrors(t *testing.T) {
	t.Parallel()
	const queues = "queues: {q: {sink: s}}\nsinks:\n  s:\n    "
	for name, test := range map[string]struct {
		text string
		want want
	}{
		"no queues":          {"\nsinks: {s: {type: nats, url: 'nats://a'}}", want{"line 1: queues: ", "missing"}},
		"empty queues":       {"\nqueues: {}\nsinks: {s: {type: nats, url: 'nats://a'}}", want{"line 2: queues: ", "missing"}},
		"no sinks":           {"queues: {q: {sink: s}}", want{"line 1: sinks: ", "missing"}},
		"no sink":            {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    shards: 1", want{"line 3: queues.q.sink: ", "missing"}},
		"other sink":         {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: t", want{"line 4: queues.q.sink: ", `"t" is no sink, there are: s`}},
		"bad name":           {base + "  Log: {type: kafka}", want{"line 3: ", "is no valid YAML"}},
		"upper case":         {queues + "type: nats\n    url: nats://a\n  S: {}", want{"line 6: sinks.S: ", `"S" is no name: give 1 to 63`}},
		"collision":          {queues + "type: nats\n    url: nats://a\n  a-b: &n {type: nats, url: 'nats://a'}\n  a_b: *n", want{"line 7: sinks.a_b: ", "cannot tell it from a-b"}},
		"late":               {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    late: {then: drop}", want{"line 5: queues.q.late.after: ", "is needed where late.then is drop"}},
		"late what":          {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    late: {then: burn}", want{"line 5: queues.q.late.then: ", "is not one of publish, dead, drop"}},
		"rate":               {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    rate: {messages: 2000000}", want{"line 5: queues.q.rate.messages: ", "is too large, allowed are 0 to 1000000"}},
		"rate of a topic":    {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    rate: {topics: [a=1, a=0]}", want{"line 5: queues.q.rate.topics: ", `"a=0": "0" is not a rate, allowed are 1 to 1000000 messages a second`}},
		"rate of no topic":   {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    rate: {topics: ['a b=1']}", want{"line 5: queues.q.rate.topics: ", `"a b=1": topic "a b"`}},
		"rates of one topic": {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    rate: {topics: [a=1, a=2]}", want{"line 5: queues.q.rate.topics: ", `"a=2": the topic has a rate already`}},
		"canary":             {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    canary: {topic: 'a b'}", want{"line 5: queues.q.canary.topic: ", `"a b": topic "a b"`}},
		"canary of others":   {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    topics: [orders.*, 'mails']\n    canary: {topic: canary.orders}", want{"line 6: queues.q.canary.topic: ", `"canary.orders" is not among queues.q.topics, which has only orders.*, mails`}},
		"retry":              {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    retry: {initial: 1h}", want{"line 5: queues.q.retry.initial: ", "1h is longer than retry.max (10m)"}},
		"max_message":        {"sinks: {s: {type: nats, url: 'nats://a'}}\nqueues:\n  q:\n    sink: s\n    max_message: 17MiB", want{"line 5: queues.q.max_message: ", "allowed are 1 to 16MiB"}},
		"no type":            {queues + "url: nats://a", want{"line 3: sinks.s.type: ", "missing"}},
		"bad type":           {queues + "type: pulsar\n    url: nats://a", want{"line 4: sinks.s.type: ", `"pulsar" is not one of kafka, nats, pubsub, rabbitmq`}},
		"no url":             {queues + "type: nats", want{"line 3: sinks.s.url: ", "missing"}},
		"no brokers":         {queues + "type: kafka", want{"line 3: sinks.s.brokers: ", "missing"}},
		"exchange of kafka":  {queues + "type: kafka\n    brokers: ['a:1']\n    exchange: x", want{"line 6: sinks.s.exchange: ", "is a key of type rabbitmq, this one is kafka"}},
		"replicas alone":     {"queues: {q: {sink: s, replicas: 2}}\nsinks: {s: {type: nats, url: 'nats://a'}}", want{"line 1: queues.q.replicas: ", "is a key of durability replicas, this one is memory"}},
		"brokers of nats":    {queues + "type: nats\n    url: nats://a\n    brokers: []", want{"line 6: sinks.s.brokers: ", "is a key of type kafka"}},
		"url of kafka":       {queues + "type: kafka\n    brokers: ['a:1']\n    url: x", want{"line 6: sinks.s.url: ", "is a key of type nats and pubsub and rabbitmq"}},
		"broker":             {queues + "type: kafka\n    brokers: ['a']", want{"line 5: sinks.s.brokers: ", `"a" is no address`}},
		"broker list":        {queues + "type: kafka\n    brokers: a:1", want{"line 5: sinks.s.brokers: ", "is a single value, must be a list"}},
		"nats scheme":        {queues + "type: nats\n    url: nats://a,http://b", want{"line 5: sinks.s.url: ", `scheme "http", allowed are nats, tls`}},
		"only commas":        {queues + "type: nats\n    url: ' , '", want{"line 5: sinks.s.url: ", "has no URL"}},
		"no host":            {queues + "type: rabbitmq\n    url: amqp:///v", want{"line 5: sinks.s.url: ", "has no host"}},
		"two logins":         {queues + "type: nats\n    url: nats://a\n    token: t\n    creds_file: /dev/null", want{"line 3: sinks.s: ", "several logins"}},
		"login in url too":   {queues + "type: nats\n    url: nats://t@a\n    token: t", want{"line 3: sinks.s: ", "several logins"}},
		"user alone":         {queues + "type: nats\n    url: nats://a\n    user: u", want{"line 3: sinks.s: ", "only one of user and password"}},
		"secret twice":       {queues + "type: nats\n    url: nats://a\n    token: t\n    token_file: /dev/null", want{"line 7: sinks.s.token_file: ", "token is given too"}},
		"missing secret":     {queues + "type: nats\n    url: nats://a\n    token_file: /nonexistent/t", want{"line 6: sinks.s.token_file: ", "no such file"}},
		"missing creds":      {queues + "type: nats\n    url: nats://a\n    creds_file: /nonexistent/t", want{"line 6: sinks.s.creds_file: ", "no such file"}},
		"missing ca":         {queues + "type: nats\n    url: nats://a\n    tls: {ca_file: /nonexistent/t}", want{"line 6: sinks.s.tls: ", "no such file"}},
		"cert without key":   {queues + "type: nats\n    url: nats://a\n    tls: {cert_file: /dev/null}", want{"line 6: sinks.s.tls: ", "give both or neither"}},
		"amqp with tls":      {queues + "type: rabbitmq\n    url: amqp://a\n    tls: {}", want{"line 5: sinks.s.url: ", "use amqps"}},
		"external alone":     {queues + "type: rabbitmq\n    url: amqps://a\n    auth: external", want{"line 6: sinks.s.auth: ", "needs a client certificate"}},
		"sasl mechanism":     {queues + "type: kafka\n    brokers: ['a:1']\n    sasl: {username: u, password: p}", want{"line 6: sinks.s.sasl.mechanism: ", "missing"}},
		"sasl password":      {queues + "type: kafka\n    brokers: ['a:1']\n    sasl: {username: u, mechanism: plain}", want{"line 6: sinks.s.sasl.password: ", "missing"}},
		"publish_timeout":    {queues + "type: nats\n    url: nats://a\n    publish_timeout: 21s", want{"line 6: sinks.s.publish_timeout: ", "is 21s, at most a third of poller.claim_timeout (60s)"}},
		"connections":        {queues + "type: rabbitmq\n    url: amqp://a\n    connections: 0", want{"line 6: sinks.s.connections: ", "allowed are 1 to 64"}},
		"exchange too long":  {queues + "type: rabbitmq\n    url: amqp://a\n    exchange: " + strings.Repeat("x", 256), want{"line 6: sinks.s.exchange: ", "has 256 bytes"}},
		"redis scheme":       {base + "redis: {url: 'http://a'}", want{"line 3: redis.url: ", `scheme "http", allowed are redis, rediss and unix`}},
		"redis host":         {base + "redis: {url: 'redis://'}", want{"line 3: redis.url: ", "has no host"}},
		"redis database":     {base + "redis: {url: 'redis://a/b'}", want{"line 3: redis.url: ", `database "b"`}},
		"redis option":       {base + "redis: {url: 'redis://a/0?max_retries=3'}", want{"line 3: redis.url: ", `option "max_retries"`}},
		"redis socket":       {base + "redis: {url: 'unix://'}", want{"line 3: redis.url: ", "no path of a socket"}},
		"redis password":     {base + "redis: {url: 'redis://:x@a/0', password: x}", want{"line 3: redis.password: ", "the URL holds a password too"}},
		"redis user":         {base + "redis: {url: 'redis://u@a/0', username: x}", want{"line 3: redis.username: ", "the URL holds a user too"}},
		"sentinel no master": {base + "redis: {mode: sentinel, sentinels: ['a:1']}", want{"line 3: redis.master: ", "missing"}},
		"sentinel alone":     {base + "redis: {mode: sentinel, master: m}", want{"line 3: redis.sentinels: ", "missing"}},
		"sentinel with url":  {base + "redis: {mode: sentinel, master: m, sentinels: ['a:1'], url: 'redis://a'}", want{"line 3: redis.url: ", "is a key of mode standalone, this one is sentinel"}},
		"cluster alone":      {base + "redis: {mode: cluster}", want{"line 3: redis.addrs: ", "missing"}},
		"cluster address":    {base + "redis: {mode: cluster, addrs: ['a:0']}", want{"line 3: redis.addrs: ", `"a:0" is no address`}},
		"addrs alone":        {base + "redis: {addrs: ['a:1']}", want{"line 3: redis.addrs: ", "is a key of mode cluster"}},
		"redis mode":         {base + "redis: {mode: ring}", want{"line 3: redis.mode: ", "is not one of standalone, sentinel, cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(test.text), nil)
			assertOnly(t, err, test.want)
		})
	}
}

// TestCanaryOfTheQueue: its topic is one that the queue takes, by a pattern too.
func TestCanaryOfTheQueue(t *testing.T) {
	t.Parallel()
	for _, topics := range []string{"[]", "[canary.orders]", "[orders, canary.*]"} {
		_, err := Parse([]byte("queues: {orders: {sink: events, topics: "+topics+", canary: {topic: canary.orders}}}\n"+
			"sinks: {events: {type: nats, url: 'nats://127.0.0.1:4222'}}"), nil)
		require.NoError(t, err, topics)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("queues:\n  q: {shards: x, sink: s}\nsinks:\n  s: {type: nats, uri: a}\nlog: {level: x}"), []string{"DELAYBRIDGE__PREFIX={}"})
	require.Error(t, err)
	assert.Equal(t, []string{
		`env DELAYBRIDGE__PREFIX: prefix: "{}": give letters, digits and _ . : -, the first a letter or a digit, 63 at the most`,
		`line 2: queues.q.shards: "x" is not a whole number`,
		`line 4: sinks.s.uri: unknown key, known are type, publish_timeout, tls, brokers, sasl, url, user, password, password_file,` +
			` token, token_file, creds_file, nkey_file, project, credentials_file, topic_requests, exchange, auth, management, connections, addrs, master, sentinels, region, account, profile, queue_requests, endpoints, requests, did you mean url?`,
		`line 4: sinks.s.url: missing, must be given`,
		`line 5: log.level: "x" is not one of debug, info, warn, error`,
	}, strings.Split(err.Error(), "\n"))
}

func TestErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis: {url: 'redis://u:hunter2%zz@a/0'}",
		"redis: {url: 'redis://u:hunter2/x@a/0'}",
		"redis: {url: 'http://u:hunter2@a/0'}",
		"redis: {mode: cluster, url: 'redis://u:hunter2@a/0'}",
		"redis: {url: 'redis://u:hunter2@a', password: hunter2}",
		"poller: {batch: '${SECRET}'}",
		"log: {level: '${SECRET}'}",
	} {
		_, err := Parse([]byte(base+text), []string{"SECRET=hunter2"})
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "hunter", text)
	}
}
