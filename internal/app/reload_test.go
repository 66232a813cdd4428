package app

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// reloadConfig has a place for more of the queue, the log's level, and more of all.
const reloadConfig = `
redis: {url: "redis://127.0.0.1:1", dial_timeout: 100ms}
queues: {orders: {sink: events%s}, reminders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}
admin: {listen: ""}
log: {level: %s}
%s
`

// TestReloadWhileStarting: what is asked before all has started is done then, and what is
// asked while a configuration is loaded is done after it; an error changes nothing.
func TestReloadWhileStarting(t *testing.T) {
	t.Parallel()
	logs, asked, loads := &testenv.Log{}, make(chan os.Signal, 1), make(chan *config.Config)
	ask := func() {
		select {
		case asked <- syscall.SIGHUP:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody listens")
		}
	}
	give := func(next *config.Config) {
		select {
		case loads <- next:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody loads")
		}
	}
	says := func(text string, times int) {
		require.Eventually(t, func() bool { return strings.Count(logs.String(), text) == times }, time.Minute, 10*time.Millisecond, "%s", logs)
	}
	ask()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	before := parse(t, reloadConfig, "", "info", "")
	go func() {
		ended <- Run(ctx, before, slog.New(slog.NewTextHandler(logs, nil)), Reload(asked, func(*config.Config) (*config.Config, error) {
			if next := <-loads; next != nil {
				return next, nil
			}
			return nil, errors.New("the file is gone")
		}))
	}()
	const changed = "changed=[queues.orders.park_patience]"
	give(parse(t, reloadConfig, ", park_patience: 1h", "info", ""))
	says(changed, 1)
	ask()
	give(nil)
	says("the file is gone", 1)
	ask()
	ask() // The first is being done.
	give(parse(t, reloadConfig, ", park_patience: 1h", "info", ""))
	says("changed=[]", 1)
	give(parse(t, reloadConfig, ", park_patience: 2h", "info", ""))
	says(changed, 2)
	cancel()
	require.NoError(t, <-ended)
}

// TestMinimalHeaders: a queue publishes with few headers of the bridge from a reload on, and those of the
// producer stay.
func TestMinimalHeaders(t *testing.T) {
	t.Parallel()
	topic, prefix := testenv.Name(t, "topic"), testenv.Name(t, "p")
	configured := func(headers string) *config.Config {
		return parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 1, sink: events, headers: %s}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {listen: \"\"}\n",
			prefix, testenv.Redis(t), headers, testenv.NATS(t))
	}
	got, asked := subscribed(t, topic), make(chan os.Signal)
	cfg := configured("full")
	runBridge(t, cfg, slog.New(slog.NewTextHandler(t.Output(), nil)), Reload(asked, func(*config.Config) (*config.Config, error) {
		return configured("minimal"), nil
	}))
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
	require.NoError(t, err)
	published := func() []string {
		message := delay.Message{Topic: topic, Headers: map[string]string{"own": "o"}, Tags: []string{"sale"}}
		require.Eventually(t, func() bool {
			message.ID = rand.Text()
			_, err = client.Schedule(t.Context(), message, delay.After(0))
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		m, err := got.NextMsgWithContext(t.Context())
		require.NoError(t, err)
		return slices.Sorted(maps.Keys(m.Header))
	}
	all := []string{"Nats-Msg-Id", "delay-attempt", "delay-due-at", "delay-id", "delay-queue", "delay-scheduled-at", "delay-tags", "delay-uid", "own"}
	require.Equal(t, all, published())
	asked <- syscall.SIGHUP
	few := []string{"Nats-Msg-Id", "delay-due-at", "delay-tags", "delay-uid", "own"}
	require.Eventually(t, func() bool { return slices.Equal(few, published()) }, time.Minute, 10*time.Millisecond)
}

// TestQueueStartsAgainWithItsInletAndOutbox: the queue that an inlet, rows and compensation messages name starts again
// while they go on, each done once.
func TestQueueStartsAgainWithItsInletAndOutbox(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	d := newDatabaseFirst(t, schema.Postgres, dsn, "")
	d.migrate()
	stream := "s-" + d.topic
	_, err := d.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{d.topic + "-in"}})
	require.NoError(t, err)
	configured := func(orders string) *config.Config {
		return parse(t, `
prefix: %s
redis: {url: %q}
queues: {orders: {shards: 2, sink: events, compensation: %s-c%s}}
sinks: {events: {type: nats, url: %q}}
outbox: {driver: postgres, dsn: %q}
inlets: {in: {sink: events, from: {stream: %s, subject: %s-in}, queue: orders, topic: %s}}
admin: {listen: %q}
`, d.config.Prefix, testenv.Redis(t), d.topic, orders, testenv.NATS(t), dsn, stream, d.topic, d.topic, d.config.Admin.Listen)
	}
	asked, loads := make(chan os.Signal), make(chan *config.Config, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, configured(""), slog.New(d.logs), Reload(asked, func(*config.Config) (*config.Config, error) { return <-loads, nil }))
	}()
	compensate := func(queue, topic, id string) {
		t.Helper()
		body, err := compensation.Encode(&compensation.Message{
			Kind: compensation.KindMessage, Queue: queue, ID: id, Topic: d.topic, Token: "~" + testenv.Name(t, "t")[:15],
			DueAt: time.Now(), ValidUntil: time.Now().Add(time.Hour),
		})
		require.NoError(t, err)
		d.eventually("there is a consumer's stream", func() bool {
			_, err := d.js.Publish(t.Context(), topic, body)
			return err == nil
		})
	}
	each := func(round string) {
		t.Helper()
		_, err := d.js.PublishMsg(t.Context(), &nats.Msg{Subject: d.topic + "-in", Header: nats.Header{"Delay-Id": {"inlet-" + round}, "Delay-In": {"0s"}}, Data: []byte("b")})
		require.NoError(t, err)
		compensate("orders", d.topic+"-c", "compensated-"+round)
		d.commit(func(tx *sql.Tx) { d.schedule(tx, "row-"+round, delay.After(0)) })
		for _, id := range []string{"inlet-", "compensated-", "row-"} {
			d.eventually(id+round+" arrives", func() bool { return d.got.of(id+round) == 1 })
		}
		d.becomes(delay.Ref{ID: "row-" + round, Key: "k"}, "schedule published")
	}
	each("first")
	changes := []string{", history: {count: 10}", fmt.Sprintf(", max_message: 1KiB}, mails: {sink: events, compensation: %s-m", d.topic)}
	for i, change := range changes {
		loads <- configured(change)
		select {
		case asked <- syscall.SIGHUP:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody listens")
		}
		each(fmt.Sprint("during-", i))
		d.eventually("it starts again", func() bool { return d.logs.count("queue_restarted") == i+1 })
		each(fmt.Sprint("after-", i))
	}
	compensate("mails", d.topic+"-m", "of another queue")
	d.eventually("it arrives", func() bool { return d.got.of("of another queue") == 1 })
	large, n := strings.Repeat("x", 2000), 0
	d.eventually("the inlet refuses what is too large now", func() bool { // It may use a layout of before for ten seconds.
		n++
		_, err := d.js.PublishMsg(t.Context(), &nats.Msg{
			Subject: d.topic + "-in", Header: nats.Header{"Delay-Id": {fmt.Sprint("large-", n)}, "Delay-In": {"0s"}}, Data: []byte(large),
		})
		return assert.NoError(t, err) && d.metric(`delaybridge_inlet_messages_total{inlet="in",op="schedule",result="invalid"}`) > 0
	})
	row := delay.Ref{ID: "large", Key: "k"}
	d.commit(func(tx *sql.Tx) {
		_, err := d.box.Schedule(t.Context(), tx, "orders", delay.Message{ID: row.ID, Key: row.Key, Topic: d.topic, Body: []byte(large)}, delay.After(0))
		require.NoError(t, err)
	})
	d.becomes(row, "schedule refused")
	cancel()
	require.NoError(t, <-ended)
}
