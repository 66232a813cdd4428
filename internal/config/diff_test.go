package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	text := strings.ReplaceAll(`
redis: {url: "redis://127.0.0.1:1/0", password_file: FILE}
queues:
  orders: {sink: events, rate: {messages: 10, topics: ["a=5"]}}
  other: {sink: events}
sinks:
  events: {type: nats, url: "nats://127.0.0.1:1"}
`, "FILE", file)
	parse := func(pairs ...string) *Config {
		cfg, err := Parse([]byte(strings.NewReplacer(pairs...).Replace(text)), nil)
		require.NoError(t, err)
		return cfg
	}
	for name, c := range map[string]struct {
		change []string
		want   []string
	}{
		"nothing":        {nil, []string{}},
		"one value":      {[]string{"messages: 10", "messages: 20"}, []string{"queues.orders.rate.messages"}},
		"a list":         {[]string{"a=5", "a=6"}, []string{"queues.orders.rate.topics"}},
		"a queue more":   {[]string{"  other:", "  third: {sink: events}\n  other:"}, []string{"queues.third"}},
		"a queue less":   {[]string{"  other: {sink: events}\n", ""}, []string{"queues.other"}},
		"several":        {[]string{"redis://127.0.0.1:1/0", "redis://127.0.0.1:1/1", "nats://127.0.0.1:1", "nats://127.0.0.1:2"}, []string{"redis.url", "sinks.events.url"}},
		"a section":      {[]string{"type: nats,", "type: nats, tls: {},"}, []string{"sinks.events.tls"}},
		"a name":         {[]string{"\nredis: {", "\ninstance: b\nredis: {"}, []string{"instance"}},
		"another secret": {[]string{"password_file: " + file, "password: x"}, []string{"redis.password", "redis.password_file"}},
	} {
		assert.Equal(t, c.want, Diff(parse(), parse(c.change...)), name)
	}
	before := parse()
	require.NoError(t, os.WriteFile(file, []byte("two"), 0o600))
	assert.Empty(t, Diff(before, parse()), "a rotated secret")
}
