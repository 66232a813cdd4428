package app

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// TestRedisFailoverLosesAPut has a replica take over that never got a message,
// though its row says that Redis has it. Nobody notices that: the epoch is the
// same. The auditor puts it back.
func TestRedisFailoverLosesAPut(t *testing.T) {
	t.Parallel()
	group := testenv.StartSentinel(t)
	d := newDatabaseFirst(t, schema.Postgres, testenv.Postgres(t), "")
	d.config.Redis.Mode, d.config.Redis.Master, d.config.Redis.Sentinels = config.Sentinel, group.Master(), group.Addrs()
	d.migrate()
	d.start()
	d.eventually("the comparisons after the start are over", func() bool { return d.logs.count("outbox_audited") == 2 })
	node := func(addr string) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		return client
	}
	primary := node(group.Primary().Addr())
	require.NoError(t, primary.Do(t.Context(), "acl", "setuser", "default", "-psync", "-sync").Err())
	require.NoError(t, primary.Do(t.Context(), "client", "kill", "type", "replica").Err())
	var lost delay.Ref
	d.commit(func(tx *sql.Tx) { lost = d.schedule(tx, "lost", delay.After(30*time.Minute)) })
	d.becomes(lost, "schedule stored")
	group.KillPrimary()
	group.AwaitFailover()
	now := node(group.Primary().Addr())
	has := func() (n int64) {
		for _, shard := range []string{"0", "1"} {
			waiting, err := now.ZCard(t.Context(), d.config.Prefix+":{orders:"+shard+"}:due").Result()
			require.NoError(t, err)
			n += waiting
		}
		return n
	}
	d.eventually("the message is put back", func() bool { return has() == 1 })
	assert.Contains(t, d.page("/metrics"), `delaybridge_outbox_audited_total{outbox="default",result="put_back"} 1`)
	d.commit(func(tx *sql.Tx) {
		require.NoError(t, d.box.Reschedule(t.Context(), tx, "orders", lost, delay.After(0)))
	})
	d.becomes(lost, "reschedule published")
	assert.Equal(t, 1, d.got.of("lost"))
}

// TestDatabaseFailoverLosesASettle has a standby take over that never heard that a
// message was published: its row says for ever that Redis has it. The auditor has
// Redis tell the row, or, where that has forgotten it, publishes a marked copy.
func TestDatabaseFailoverLosesASettle(t *testing.T) {
	t.Parallel()
	primary := testenv.StartPostgres(t, "")
	standby := testenv.StartPostgresStandby(t, primary, "")
	proxy := testenv.NewProxy(t, primary.Addr())
	d := newDatabaseFirst(t, schema.Postgres, strings.ReplaceAll(primary.URL(), primary.Addr(), proxy.Addr()), "")
	attempts := make(chan string, 10)
	_, err := d.nc.Subscribe(d.topic, func(m *nats.Msg) { attempts <- m.Header.Get(message.HeaderAttempt) })
	require.NoError(t, err)
	d.migrate()
	d.start()
	follower, err := sqldb.Open(schema.Postgres, standby.URL())
	require.NoError(t, err)
	defer func() { _ = follower.Close() }()
	status := func() (n int) {
		err := follower.QueryRowContext(t.Context(), "SELECT COALESCE(max(status), 0) FROM delay_outbox WHERE message_id = 'm'").Scan(&n)
		require.NoError(t, err)
		return n
	}
	var ref delay.Ref
	d.commit(func(tx *sql.Tx) { ref = d.schedule(tx, "m", delay.After(20*time.Second)) })
	const stored = 1
	d.eventually("the standby knows the row as stored", func() bool { return status() == stored })
	standby.Detach()
	d.eventually("published, says the primary", func() bool { return d.row(ref) == "schedule published" })
	require.Equal(t, stored, status(), "the standby was detached in time")
	primary.Kill()
	standby.Promote()
	proxy.Forward(standby.Addr())
	proxy.Cut()
	promoted := time.Now()
	d.eventually("published, says the new primary", func() bool { return status() == 2 })
	t.Log("put right after", time.Since(promoted))
	first := <-attempts
	for range d.got.of("m") - 1 {
		assert.NotEqual(t, first, <-attempts, "a copy without a mark")
	}
}
