package trial_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// TestCompensation kills Redis, and lets the broker carry what a producer without a database
// could not write. (Of a row the relay takes care; see TestOutbox.)
func TestCompensation(t *testing.T) {
	t.Parallel()
	for _, broker := range size([]string{"nats"}, []string{"nats", "rabbitmq", "kafka", "redis"}) {
		t.Run(broker, func(t *testing.T) { compensate(t, broker, size(20, 200)) })
	}
}

func compensate(t *testing.T, broker string, count int) {
	t.Helper()
	w := newWorld(t, trial.Options{
		Broker: broker, Copies: true, QueueKeys: "compensation: delay.compensation.orders", Redis: persistent("--appendfsync", "always"),
	})
	publish, hangUp, err := w.Broker.Publisher(5 * time.Second)
	require.NoError(t, err)
	t.Cleanup(hangUp)
	client, err := delay.NewClient(w.RDB, w.Queue(), delay.WithPrefix(w.Prefix()), delay.WithCompensation(publish))
	require.NoError(t, err)
	consume(t, w)
	schedule := func(name string, count int, due time.Time) {
		var group errgroup.Group
		for i := range count {
			group.Go(func() error {
				m := delay.Message{ID: fmt.Sprintf("%s-%d", name, i), Topic: w.Topic}
				result, err := client.Schedule(t.Context(), m, delay.At(due))
				if err == nil {
					w.Ledger.Scheduled(m, result)
				}
				return err
			})
		}
		require.NoError(t, group.Wait(), name)
	}
	schedule("before", 1, time.Now()) // The client knows the queue.
	w.Ledger.Await(time.Minute, 100*time.Millisecond)

	require.NoError(t, w.Redis.Kill())
	away := time.Now().Add(size(2*time.Second, 20*time.Second))
	schedule("meanwhile", count, away.Truncate(time.Millisecond))
	require.NoError(t, trial.Sleep(t.Context(), time.Until(away)))
	require.NoError(t, w.Redis.Start(t.Context()))
	back := time.Now()
	require.Eventually(t, func() bool { return w.Ledger.Missing() == 0 }, time.Minute, 5*time.Millisecond)
	t.Logf("all published %s after Redis was back", time.Since(back))
	w.Ledger.Await(time.Minute, time.Second)
	report, _ := check(t, w)
	assert.Equal(t, count+1, report.Arrived)
	assert.Zero(t, report.Duplicates)
}
