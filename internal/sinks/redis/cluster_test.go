package redis_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// Nodes of a Cluster fail by themselves: while one hangs, the outcomes of the others'
// streams come.
func TestAHangingNodeDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t)
	b := broker{options: at(c.Addrs()...), isCluster: true}
	hanging, healthy := testenv.Name(t, "hanging"), ""
	for healthy == "" || c.PrimaryOf(healthy).Addr() == c.PrimaryOf(hanging).Addr() {
		healthy = testenv.Name(t, "healthy")
	}
	b.MakeTopic(t, hanging, sinktest.TopicOptions{})
	b.MakeTopic(t, healthy, sinktest.TopicOptions{})
	const timeout = 5 * time.Second // Longer than it takes until a replica is promoted: that is no matter here.
	sink := b.newSink(t, redis.Config{PublishTimeout: timeout})
	for _, outcome := range sinktest.Publish(t, sink, sinktest.NewMessage(t, hanging, ""), sinktest.NewMessage(t, healthy, "")) {
		sinktest.RequireOutcome(t, outcome, sinks.Acknowledged, "")
	}
	node := c.PrimaryOf(hanging)
	node.Pause()
	batch := []message.Message{sinktest.NewMessage(t, hanging, "a"), sinktest.NewMessage(t, hanging, "a")}
	for range 50 {
		batch = append(batch, sinktest.NewMessage(t, healthy, "a"))
	}
	outcomes, began := sinks.NewOutcomes(len(batch)), time.Now()
	sink.Publish(t.Context(), batch, outcomes)
	node.Resume()
	for _, report := range outcomes.Take() {
		require.False(t, report.Whole)
		if report.Index >= 2 {
			sinktest.RequireOutcome(t, report.Outcome, sinks.Acknowledged, "")
			require.Less(t, report.At.Sub(began), timeout*3/4)
			continue
		}
		require.Contains(t, []sinks.Class{sinks.Unknown, sinks.Unavailable}, report.Class)
		require.Equal(t, sinks.ReasonTimeout, report.Reason, "%v", report.Err)
	}
}

// TestMovingLeaders moves a stream in a Cluster while it is written to: to the replica, as
// an administrator does, so that nothing acknowledged is lost; and with its slot to
// other nodes.
func TestMovingLeaders(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t)
	b := broker{options: at(c.Addrs()...), isCluster: true}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	failOver := func() {
		before := c.PrimaryOf(topic).Addr()
		client := broker{options: at(replicaOf(t, b, topic))}.client(t)
		require.NoError(t, client.Do(t.Context(), "CLUSTER", "FAILOVER").Err())
		require.Eventually(t, func() bool { return c.PrimaryOf(topic).Addr() != before }, time.Minute, 20*time.Millisecond)
		c.AwaitFailover()
	}
	migrate := func() {
		migration := c.MigrateSlotOf(topic)
		migration.Move(1)
		migration.Finish()
		c.AwaitFailover()
	}
	sinktest.MovingLeaders(t, b, topic, sinktest.Options{PublishTimeout: 2 * time.Second},
		failOver, migrate, failOver, migrate, migrate, failOver)
}

// replicaOf is the address of the replica of the topic's node.
func replicaOf(t *testing.T, b broker, topic string) string {
	t.Helper()
	client := b.client(t)
	slot, err := client.ClusterKeySlot(t.Context(), topic).Result()
	require.NoError(t, err)
	slots, err := client.ClusterSlots(t.Context()).Result()
	require.NoError(t, err)
	i := slices.IndexFunc(slots, func(s goredis.ClusterSlot) bool { return s.Start <= int(slot) && int(slot) <= s.End })
	require.GreaterOrEqual(t, i, 0)
	return slots[i].Nodes[1].Addr
}

// A primary dies while it is written to, and a replica takes over. What the primary had
// acknowledged, and not yet sent to the replica, may be lost: the price of an answer that waits
// for no replica. But nothing is stored twice, and what is stored of a Key is in order.
func TestAPrimaryDies(t *testing.T) {
	t.Parallel()
	const config = "appendfsync always"
	cluster := func(t *testing.T, topic string) (b broker, kill, heal func()) {
		t.Helper()
		c := testenv.StartCluster(t, "appendonly yes", config)
		var killed *testenv.Server
		return broker{options: at(c.Addrs()...), isCluster: true},
			func() { killed = c.KillPrimaryOf(topic) }, func() { killed.Start(); c.AwaitFailover() }
	}
	sentinel := func(t *testing.T, _ string) (b broker, kill, heal func()) {
		t.Helper()
		s := testenv.StartSentinel(t, "appendonly yes", config)
		options := at(s.Addrs()...)
		options.MasterName = s.Master()
		var killed *testenv.Server
		return broker{options: options}, func() { killed = s.KillPrimary() }, func() { killed.Start(); s.AwaitFailover() }
	}
	for name, start := range map[string]func(*testing.T, string) (b broker, kill, heal func()){"cluster": cluster, "sentinel": sentinel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := testenv.Name(t, "topic")
			b, kill, heal := start(t, topic)
			b.MakeTopic(t, topic, sinktest.TopicOptions{})
			sink := b.newSink(t, redis.Config{PublishTimeout: 2 * time.Second})
			var acknowledged atomic.Int64
			told := make(chan map[int]sinks.Class)
			stop := make(chan struct{})
			go func() { told <- publishNumbers(t, sink, topic, stop, &acknowledged) }()
			await := func(n int64) {
				t.Helper()
				require.Eventually(t, func() bool { return acknowledged.Load() >= n }, 2*time.Minute, time.Millisecond)
			}
			await(500)
			kill()
			before := acknowledged.Load()
			await(before + 500)
			heal()
			close(stop)
			classes := <-told
			stored := map[int]bool{}
			last := -1
			for _, s := range b.Read(t, topic, 0) {
				number, err := strconv.Atoi(string(s.Body))
				require.NoError(t, err)
				require.False(t, stored[number], "%d is stored twice", number)
				require.Greater(t, number, last)
				require.NotEqual(t, sinks.Unavailable, classes[number], "%d was said not to be stored", number)
				stored[number], last = true, number
			}
			lost, counts := 0, map[string]int{}
			for number, class := range classes {
				counts[class.String()]++
				if class == sinks.Acknowledged && !stored[number] {
					lost++
				}
			}
			t.Logf("%v; %d of those acknowledged are lost with the primary", counts, lost)
		})
	}
}

// publishNumbers publishes numbers of one Key, each once, until it is told to stop.
func publishNumbers(t *testing.T, sink sinks.Sink, topic string, stop <-chan struct{}, acknowledged *atomic.Int64) map[int]sinks.Class {
	t.Helper()
	classes := map[int]sinks.Class{}
	for number := 0; ; {
		select {
		case <-stop:
			return classes
		default:
		}
		batch := make([]message.Message, 10)
		for i := range batch {
			batch[i] = sinktest.NewMessage(t, topic, "a")
			batch[i].Body = fmt.Append(nil, number+i)
		}
		answered := 0
		for i, outcome := range sinktest.Publish(t, sink, batch...) {
			classes[number+i] = outcome.Class
			if outcome.Class == sinks.Acknowledged {
				answered++
			}
		}
		number += len(batch)
		if acknowledged.Add(int64(answered)); answered == 0 {
			wait.Sleep(t.Context(), 20*time.Millisecond) // As a poller that parks the route.
		}
	}
}
