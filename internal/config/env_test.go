package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEnvOverrides(t *testing.T) {
	t.Parallel()
	config, err := Parse([]byte(`
queues: {my-orders: {sink: log_a}, a: {sink: log_a}, a__b: {sink: log_a}}
sinks: {log_a: {type: kafka, brokers: ["a:1"]}, n: {type: nats, url: "nats://a"}}
log: {level: info}
`), []string{
		"DELAYBRIDGE__REDIS__URL=rediss://u:pa$$word@b:1/2",
		"DELAYBRIDGE__QUEUES__MY_ORDERS__RETRY__MAX=1h",
		"DELAYBRIDGE__queues__my_orders__shards=3",
		"DELAYBRIDGE__QUEUES__A__B__SHARDS=4",
		"DELAYBRIDGE__SINKS__LOG_A__BROKERS=b:1, c:2,",
		"DELAYBRIDGE__SINKS__LOG_A__SASL__MECHANISM=plain",
		"DELAYBRIDGE__SINKS__LOG_A__SASL__USERNAME=u",
		"DELAYBRIDGE__SINKS__LOG_A__SASL__PASSWORD=#${x}: y",
		"DELAYBRIDGE__SINKS__N__TLS__SERVER_NAME=name",
		"DELAYBRIDGE__LOG__LEVEL=warn", "DELAYBRIDGE__LOG__LEVEL=debug",
		"DELAYBRIDGE_TEST_REDIS_URL=ignored", "OTHER=ignored", "nonsense",
	})
	require.NoError(t, err)
	assert.Equal(t, "rediss://u:pa$$word@b:1/2", config.Redis.URL, "values of variables are not expanded")
	assert.Equal(t, time.Hour, config.Queues["my-orders"].Retry.Max)
	assert.Equal(t, 3, config.Queues["my-orders"].Shards)
	assert.Equal(t, 8, config.Queues["a"].Shards)
	assert.Equal(t, 4, config.Queues["a__b"].Shards)
	kafka := config.Sinks["log_a"]
	assert.Equal(t, []string{"b:1", "c:2"}, kafka.Kafka.Brokers)
	assert.Equal(t, "#${x}: y", reveal(t, kafka.Kafka.SASL.Password))
	assert.Equal(t, "name", config.Sinks["n"].TLS.ServerName)
	assert.Equal(t, "debug", config.Log.Level, "of two with one name the last counts")
}

func TestEnvErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  []string
		want want
	}{
		"no such key":      {[]string{"DELAYBRIDGE__LOG__LVL=x"}, want{"env DELAYBRIDGE__LOG__LVL: ", "matches no key"}},
		"no such sink":     {[]string{"DELAYBRIDGE__SINKS__OTHER__URL=x"}, want{"env DELAYBRIDGE__SINKS__OTHER__URL: ", "must be in the file"}},
		"single underline": {[]string{"DELAYBRIDGE__SINKS_EVENTS_URL=x"}, want{"env DELAYBRIDGE__SINKS_EVENTS_URL: ", "matches no key"}},
		"a section":        {[]string{"DELAYBRIDGE__SINKS__EVENTS=x"}, want{"env DELAYBRIDGE__SINKS__EVENTS: sinks.events: ", "is a section"}},
		"below a value":    {[]string{"DELAYBRIDGE__PREFIX__X=x"}, want{"env DELAYBRIDGE__PREFIX__X: ", "matches no key"}},
		"twice":            {[]string{"DELAYBRIDGE__prefix=x", "DELAYBRIDGE__PREFIX=y"}, want{"env DELAYBRIDGE__prefix: prefix: ", "is also given by DELAYBRIDGE__PREFIX"}},
		"not a number":     {[]string{"DELAYBRIDGE__QUEUES__ORDERS__SHARDS=x"}, want{"env DELAYBRIDGE__QUEUES__ORDERS__SHARDS: queues.orders.shards: ", `"x" is not a whole number`}},
		"other type":       {[]string{"DELAYBRIDGE__SINKS__EVENTS__EXCHANGE=x"}, want{"env DELAYBRIDGE__SINKS__EVENTS__EXCHANGE: sinks.events.exchange: ", "is a key of type rabbitmq"}},
		"cross check":      {[]string{"DELAYBRIDGE__POLLER__CLAIM_TIMEOUT=9s"}, want{"env DELAYBRIDGE__POLLER__CLAIM_TIMEOUT: poller.claim_timeout: ", "at most a third"}},
		"bad url":          {[]string{"DELAYBRIDGE__REDIS__URL=redis://:%zz@a"}, want{"env DELAYBRIDGE__REDIS__URL: redis.url: ", "is no valid URL"}},
		"emptied list":     {[]string{"DELAYBRIDGE__SINKS__EVENTS__URL="}, want{"env DELAYBRIDGE__SINKS__EVENTS__URL: sinks.events.url: ", "missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(base), test.env)
			assertOnly(t, err, test.want)
		})
	}
}

func TestEnvAmbiguous(t *testing.T) {
	t.Parallel()
	text := `
queues: {q: {sink: a}}
sinks: {a: {type: nats, url: "nats://a"}, a__sasl: {type: nats, url: "nats://a", user: u}}
`
	_, err := Parse([]byte(text), []string{"DELAYBRIDGE__SINKS__A__SASL__PASSWORD=x", "DELAYBRIDGE__SINKS__A__SASL__CREDS_FILE="})
	require.ErrorContains(t, err, "env DELAYBRIDGE__SINKS__A__SASL__PASSWORD: could mean sinks.a.sasl.password or sinks.a__sasl.password")
	assert.NotContains(t, err.Error(), "CREDS_FILE", "only one sink has that key")
}
