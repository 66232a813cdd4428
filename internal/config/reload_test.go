package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// everyChange is of each key of a queue that may change.
const everyChange = `, rate: {messages: 5, topics: ["t=1"]}, late: {after: 1h, then: dead}, retry: {initial: 2s, max: 1h, attempts: 3},
  park_patience: 1h, dead: {keep: 1h, max: 10}, budget: {bytes: 1MiB, policy: warn}`

// reloaded has more of the queue, the log's level, and more of all.
func reloaded(t *testing.T, queue, log, more string) *Config {
	t.Helper()
	cfg, err := Parse([]byte(fmt.Sprintf(`
queues: {orders: {sink: events%s}, reminders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}
log: {level: %s}
%s
`, queue, log, more)), nil)
	require.NoError(t, err)
	return cfg
}

// TestChanges of every key that may change, and no other one is listed.
func TestChanges(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	admin := func(auth string) string {
		return fmt.Sprintf(`admin: {tls: {cert_file: %s, key_file: %s, client_ca_file: %s}, auth: {issuers: {corp: {url: "https://a.example", audiences: [a], callers: ["sub=%s`,
			certs.ServerCert, certs.ServerKey, certs.CAFile, auth)
	}
	after := admin(`ann viewer"]}, more: {url: "https://b.example", audiences: [a], callers: ["sub=* viewer"]}}, certificates: [cn=a viewer]}}`)
	before, next := reloaded(t, "", "info", admin(`* viewer"]}}}}`)), reloaded(t, everyChange, "debug", after)
	changed, err := Changes(before, next)
	require.NoError(t, err)
	patterns := make([]string, len(changed))
	for i, key := range changed {
		patterns[i] = strings.NewReplacer(".orders.", ".*.", ".corp.callers", ".*.*", ".more", ".*").Replace(key)
	}
	assert.ElementsMatch(t, changeable, patterns)
	changed, err = Changes(next, reloaded(t, everyChange, "debug", after))
	require.NoError(t, err)
	assert.Equal(t, []string{}, changed)
}

// TestChangesThatNeedARestart are named, whatever else has changed.
func TestChangesThatNeedARestart(t *testing.T) {
	t.Parallel()
	before := reloaded(t, "", "info", "")
	for name, c := range map[string]struct{ queue, log, more, want string }{
		"of a queue":     {", shards: 3, topics: [t], history: {count: 1}", "", "", "queues.orders.shards, queues.orders.history.count, queues.orders.topics"},
		"of the process": {"", "", "drain_timeout: 7s\nprefix: other", "prefix, drain_timeout"},
		"of the log":     {"", ", format: json", "", "log.format"},
		"another queue":  {"}, third: {sink: events", "", "", "queues.third"},
		"the name":       {"", "", "instance: other", "instance"},
		"an outbox":      {"", "", `outbox: {driver: postgres, dsn: "postgres://h/d"}`, "outbox.default"},
	} {
		changed, err := Changes(before, reloaded(t, everyChange+c.queue, "debug"+c.log, c.more))
		require.ErrorIs(t, err, ErrRestart, name)
		require.EqualError(t, err, "needs a restart: "+c.want, name)
		assert.Empty(t, changed, name)
	}
}
