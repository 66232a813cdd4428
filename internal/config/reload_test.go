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
const everyChange = `, owner: payments, contacts: ["#payments"], rate: {messages: 5, topics: ["t=1"]}, late: {after: 1h, then: dead}, retry: {initial: 2s, max: 1h, attempts: 3},
  park_patience: 1h, headers: minimal, dead: {keep: 1h, max: 10}, budget: {bytes: 1MiB, policy: warn}`

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
	const files = "\nqueue_files: {teams: {files: [none.yaml], %s}%s}"
	after := admin(`ann viewer"]}, more: {url: "https://b.example", audiences: [a], callers: ["sub=* viewer"]}}, certificates: [cn=a viewer]}}`) + fmt.Sprintf(files, "max_rate: 2", ", more: {files: [other.yaml]}")
	before := reloaded(t, "", "info", admin(`* viewer"]}}}}`)+fmt.Sprintf(files, "max_rate: 1", ""))
	next := reloaded(t, everyChange, "debug", after)
	changes, err := before.Changes(next)
	require.NoError(t, err)
	patterns := make([]string, len(changes.Keys))
	for i, key := range changes.Keys {
		patterns[i] = strings.NewReplacer(".orders.", ".*.", ".corp.callers", ".*.*", ".more", ".*", ".teams.max_rate", ".*.*").Replace(key)
	}
	assert.ElementsMatch(t, changeable, patterns)
	assert.Equal(t, Changes{Keys: changes.Keys, Changed: []string{"orders"}}, changes)
	changes, err = next.Changes(reloaded(t, everyChange, "debug", after))
	require.NoError(t, err)
	assert.Equal(t, Changes{Keys: []string{}}, changes)
}

// TestChangesOfTheQueues: queues come, go, and start again with other settings.
func TestChangesOfTheQueues(t *testing.T) {
	t.Parallel()
	before := reloaded(t, "", "info", "")
	for name, c := range map[string]struct {
		queue string
		want  Changes
	}{
		"more":           {"}, third: {sink: events", Changes{Keys: []string{"queues.third"}, Added: []string{"third"}}},
		"another":        {"}, third: {sink: events", Changes{Keys: []string{"queues.third"}, Added: []string{"third"}}},
		"other settings": {", topics: [t], late: {after: 1h}", Changes{Keys: []string{"queues.orders.late.after", "queues.orders.topics"}, Restarted: []string{"orders"}}},
	} {
		changes, err := before.Changes(reloaded(t, c.queue, "info", ""))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, changes, name)
	}
	changes, err := reloaded(t, "}, third: {sink: events", "info", "").Changes(before)
	require.NoError(t, err)
	assert.Equal(t, Changes{Keys: []string{"queues.third"}, Removed: []string{"third"}}, changes)
}

// TestChangesThatNeedARestart are named, whatever else has changed.
func TestChangesThatNeedARestart(t *testing.T) {
	t.Parallel()
	const outbox = `outbox: {driver: postgres, dsn: "postgres://h/d"}`
	for name, c := range map[string]struct{ always, queue, log, more, want string }{
		"of the process": {"", "", "", "drain_timeout: 7s\nprefix: other", "prefix, drain_timeout"},
		"of the log":     {"", "", ", format: json", "", "log.format"},
		"the name":       {"", "", "", "instance: other", "instance"},
		"an outbox":      {"", "", "", outbox, "outbox.default"},
	} {
		before, next := reloaded(t, "", "info", c.always), reloaded(t, everyChange+c.queue, "debug"+c.log, c.always+"\n"+c.more)
		changes, err := before.Changes(next)
		require.ErrorIs(t, err, ErrRestart, name)
		require.EqualError(t, err, "needs a restart: "+c.want, name)
		assert.Empty(t, changes, name)
	}
}
