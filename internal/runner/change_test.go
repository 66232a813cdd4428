package runner_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// patience bounds every wait.
const patience = time.Minute

// with is the configuration with a third queue of these settings; empty: without it.
func (p *process) with(third string) *config.Config {
	p.t.Helper()
	orders := ""
	if third != "" {
		orders = "}, third: {shards: 2, " + third
	}
	return p.parse(p.config.Redis.URL, p.config.Prefix, orders, "info")
}

// holding is a process whose third queue waits for the broker's answer to a message, until hold is closed.
func holding(t *testing.T) *process {
	t.Helper()
	p := newProcess(t, testenv.Redis(t), "", "")
	p.broker.hold = make(chan struct{})
	p.Start(t.Context())
	p.change(p.with("sink: events"))
	p.schedule("held", 0)
	require.Equal(t, "held", next(t, p.broker))
	return p
}

// schedule schedules a message in the third queue as soon as that has been made.
func (p *process) schedule(id string, after time.Duration) {
	p.t.Helper()
	client, err := delay.NewClient(p.rdb, "third", delay.WithPrefix(p.prefix))
	require.NoError(p.t, err)
	require.Eventually(p.t, func() bool {
		_, err := client.Schedule(p.t.Context(), delay.Message{ID: id, Topic: "t"}, delay.After(after))
		return err == nil
	}, patience, 10*time.Millisecond)
}

func (p *process) metricsPage() string {
	w := httptest.NewRecorder()
	p.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(p.t.Context(), http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// count is how often the log says so.
func (p *process) count(text string) int { return strings.Count(p.logs.String(), text) }

func (p *process) logged(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.count(text) > 0 }, patience, 10*time.Millisecond, text)
}

// third looks at the third queue in Redis, whoever has it.
func third(p *process) *inspect.Admin {
	return inspect.NewAdmin(store.New(p.rdb, p.config.Prefix, "third"))
}

// TestSourceOfAQueue: the API sees which file declares a queue, and since when it is so, also where another file takes the name and changes nothing else.
func TestSourceOfAQueue(t *testing.T) {
	t.Parallel()
	p := newProcess(t, testenv.Redis(t), "", "")
	p.Start(t.Context())
	began := time.Now()
	assert.Empty(t, p.Used()["orders"].File)
	assert.WithinDuration(t, began, p.Used()["orders"].Since, patience)
	cfg := *p.with("")
	cfg.QueueFiles = map[string]config.QueueFiles{config.APISection: {MaxQueues: 1, MaxShards: 2}}
	declared := cfg.With(cfg.Declare(map[string]string{"third": `{"shards": 2, "sink": "events"}`}))
	require.Empty(t, declared.FileErrors())
	p.change(declared)
	before := p.Used()["third"]
	assert.Equal(t, "api:third", before.File)
	p.change(p.with("sink: events"))
	assert.Empty(t, p.Used()["third"].File)
	assert.True(t, p.Used()["third"].Since.After(before.Since))
	assert.Equal(t, before.Store, p.Used()["third"].Store, "it has not started again")
	before = p.Used()["third"]
	p.change(p.with("sink: events, rate: {messages: 100}"))
	assert.True(t, p.Used()["third"].Since.After(before.Since))
	require.NoError(t, p.Stop(t.Context()))
}

// next is what a broker gets next, besides canaries.
func next(t *testing.T, b *broker) string {
	t.Helper()
	select {
	case id := <-b.published:
		if id == "delaybridge-canary" {
			return next(t, b)
		}
		return id
	case <-time.After(patience):
		require.Fail(t, "nothing is published")
		return ""
	}
}

// TestQueueComesAndGoes beside others: what waits in it, and what producers still put into it, is
// published when it comes back, to the sink that it names then (I1).
func TestQueueComesAndGoes(t *testing.T) {
	t.Parallel()
	p := newProcess(t, testenv.Redis(t), "", "")
	p.Start(t.Context())
	orders := p.Used()["orders"]
	p.change(p.with("sink: events, owner: ann, contacts: [desk], rate: {messages: 100}, canary: {topic: c, every: 5m}"))
	used := p.Used()["third"]
	require.NotNil(t, used)
	assert.Equal(t, []any{"ann", []string{"desk"}, "events"}, []any{used.Owner, used.Contacts, used.Sink})
	assert.Same(t, orders, p.Used()["orders"], "another queue is left alone")
	p.schedule("now", 0)
	assert.Equal(t, "now", next(t, p.broker))
	require.Eventually(t, func() bool {
		all, err := p.Stats(t.Context())
		require.NoError(t, err)
		return len(all) == 5 && all[0].Instance == all[4].Instance
	}, patience, 10*time.Millisecond, "it is this bridge's, by the same name as the others")
	p.schedule("later", 300*time.Millisecond)
	page := p.metricsPage()
	for _, series := range []string{`queue_info{owner="ann",queue="third"} 1`, `rate_limit{queue="third",topic=""} 100`, `canary_last_success_timestamp_seconds{queue="third"}`} {
		assert.Contains(t, page, series)
	}

	holder := func() string {
		stats, err := third(p).StatsOfAll(t.Context())
		require.NoError(t, err)
		return stats.Shards[0].Holder
	}
	before := holder()
	p.change(p.with("sink: events, owner: bob"))
	p.logged("queue starts again")
	require.Eventually(t, func() bool { return holder() != "" && holder() != before }, patience, 10*time.Millisecond, "another boot, of whose claims none are the old one's")
	assert.NotContains(t, p.metricsPage(), "canary_seconds_count", "it has no canary any more")
	assert.Equal(t, "later", next(t, p.broker))
	p.schedule("left", time.Second)
	p.change(p.with(""))
	assert.NotContains(t, p.Used(), "third")
	assert.Nil(t, p.InForce("third"))
	p.logged("event=queue_removed waiting=1 in_flight=0 dead=0")
	assert.NotContains(t, p.metricsPage(), `"third"`)
	p.schedule("after", 0)
	stats, err := p.Stats(t.Context())
	require.NoError(t, err)
	for _, s := range stats {
		assert.NotEqual(t, "third", s.Queue)
	}

	p.change(p.with("sink: other"))
	got := []string{next(t, p.other), next(t, p.other)}
	assert.ElementsMatch(t, []string{"left", "after"}, got)
	assert.Empty(t, p.broker.published)
	require.NoError(t, p.Stop(t.Context()))
}

// TestChangesWhileItDrains: what was asked last counts when the queue has drained, and what was in
// flight is published once.
func TestChangesWhileItDrains(t *testing.T) {
	t.Parallel()
	p := holding(t)
	for _, third := range []string{"", "sink: events, topics: [t]", "", "sink: other", "sink: other, owner: ann"} {
		p.change(p.with(third))
	}
	assert.Equal(t, "ann", p.Used()["third"].Owner)
	assert.Equal(t, "other", p.InForce("third").Sink)
	assert.Zero(t, p.count("starts again"), "it drains")
	close(p.broker.hold)
	p.logged("queue starts again")
	p.schedule("next", 0)
	assert.Equal(t, "next", next(t, p.other))
	assert.Equal(t, 1, p.count("starts again"))
	assert.Zero(t, p.count("queue_removed"))
	require.Eventually(t, func() bool {
		stats, err := third(p).StatsOfAll(t.Context())
		require.NoError(t, err)
		sum := stats.Sum()
		return sum.InFlight+sum.Waiting == 0
	}, patience, 10*time.Millisecond)
	assert.Empty(t, p.broker.published, "no copy")
	assert.Empty(t, p.other.published, "no copy")
	require.NoError(t, p.Stop(t.Context()))
}

// TestStopWhileItDrains: the end of the bridge waits for a queue that is being removed, and nothing
// starts again.
func TestStopWhileItDrains(t *testing.T) {
	t.Parallel()
	p := holding(t)
	p.change(p.with("sink: other"))
	stopped := make(chan error)
	go func() { stopped <- p.Stop(t.Context()) }()
	require.Eventually(t, func() bool {
		beats, _, err := inspect.NewAdmin(store.New(p.rdb, p.prefix, "orders")).Instances(t.Context())
		require.NoError(t, err)
		return len(beats) == 0
	}, patience, 10*time.Millisecond, "the others have drained")
	close(p.broker.hold)
	require.NoError(t, <-stopped)
	assert.Zero(t, p.count("starts again")+p.count("queue_removed"), "either has come before the stop")
	stats, err := third(p).StatsOfAll(t.Context())
	require.NoError(t, err)
	sum := stats.Sum()
	assert.Zero(t, sum.Waiting+sum.InFlight, "what was in flight is settled")
	p.change(p.with(""))
}

// TestOtherInstancesTakeTheShards of a queue that one instance does not have any more.
func TestOtherInstancesTakeTheShards(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t)
	a := newProcess(t, url, "", "")
	b := newProcessOf(t, url, a.config.Prefix, "}, third: {shards: 2, sink: events", "")
	a.Start(t.Context())
	b.Start(t.Context())
	a.change(a.with("sink: events"))
	holders := func() (names []string) {
		stats, err := third(a).StatsOfAll(t.Context())
		if err != nil {
			return nil
		}
		for i := range stats.Shards {
			names = append(names, stats.Shards[i].Holder)
		}
		return names
	}
	require.Eventually(t, func() bool {
		h := holders()
		return len(h) == 2 && h[0] != "" && h[1] != ""
	}, patience, 10*time.Millisecond)
	a.change(a.with(""))
	a.logged("queue_removed")
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(holders(), func(h string) bool {
			return len(h) < len(b.config.Instance) || h[:len(b.config.Instance)] != b.config.Instance
		})
	}, patience, 10*time.Millisecond)
	b.schedule("there", 0)
	assert.Equal(t, "there", next(t, b.broker))
	require.NoError(t, a.Stop(t.Context()))
	require.NoError(t, b.Stop(t.Context()))
}

// TestChangesLoseNothing: a queue that comes, goes, starts again and is resharded while producers
// schedule publishes each message, and none twice (I1, I2).
func TestChangesLoseNothing(t *testing.T) {
	t.Parallel()
	p := newProcess(t, testenv.Redis(t), "", "")
	p.Start(t.Context())
	p.change(p.with("sink: events"))
	const messages = 300
	var producing sync.WaitGroup
	producing.Go(func() {
		for i := range messages {
			p.schedule(fmt.Sprint(i), time.Duration(rand.IntN(500))*time.Millisecond)
		}
	})
	changes := []string{"", "sink: other", "sink: events", "sink: events, rate: {messages: 1000}", "sink: events, topics: [t]", ""}
	asked := make(chan struct{})
	go func() { defer close(asked); producing.Wait() }()
	shards := 2
	for isOver := false; !isOver; {
		p.change(p.with(changes[rand.IntN(len(changes))]))
		if rand.IntN(4) == 0 {
			shards = 5 - shards
			_, _ = store.New(p.rdb, p.config.Prefix, "third").Layouts().SetShards(t.Context(), shards) // It may be under way.
		}
		select {
		case <-asked:
			isOver = true
		case <-time.After(time.Duration(rand.IntN(100)) * time.Millisecond): // Nothing waits for it: it only spreads the changes.
		}
	}
	p.change(p.with("sink: events, owner: end"))
	seen := map[string]int{}
	for len(seen) < messages {
		select {
		case id := <-p.broker.published:
			seen[id]++
		case id := <-p.other.published:
			seen[id]++
		case <-time.After(patience):
			require.Failf(t, "lost", "%d of %d are published", len(seen), messages)
		}
	}
	for id, n := range seen {
		assert.Equal(t, 1, n, id)
	}
	require.NoError(t, p.Stop(t.Context()))
	assert.Empty(t, p.broker.published)
	assert.Empty(t, p.other.published)
}

// TestJobAndPauseOutliveTheQueue: a job that is under way goes on when its queue is back, each message
// counted once, and a pause is still one.
func TestJobAndPauseOutliveTheQueue(t *testing.T) {
	t.Parallel()
	p := newProcess(t, testenv.Redis(t), "", "")
	p.Start(t.Context())
	p.change(p.with("sink: events"))
	const messages = 60
	for i := range messages {
		p.schedule(fmt.Sprint(i), time.Hour)
	}
	queue := p.Used()["third"]
	id, err := queue.Jobs().Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Topic: "t"}, Rate: 20})
	require.NoError(t, err)
	done := func() job.Job {
		j, err := queue.Jobs().Get(t.Context(), id)
		require.NoError(t, err)
		return j
	}
	require.Eventually(t, func() bool { return done().Tally.Done > 0 }, patience, 10*time.Millisecond)
	_, err = queue.Pause(t.Context(), "", "ann")
	require.NoError(t, err)
	p.change(p.with(""))
	p.logged("queue_removed")
	assert.Less(t, done().Tally.Done, int64(messages), "it stands still")

	p.change(p.with("sink: other"))
	require.Eventually(t, func() bool { return done().State == job.Done }, 2*patience, 50*time.Millisecond)
	tally := done().Tally
	assert.Equal(t, job.Tally{Matched: messages, Done: messages}, tally)
	p.schedule("now", 0)
	require.Eventually(t, func() bool {
		stats, err := third(p).StatsOfAll(t.Context())
		require.NoError(t, err)
		return stats.HeldShards() == 2 && len(stats.Paused) == 1
	}, patience, 10*time.Millisecond)
	assert.Empty(t, p.other.published, "it is paused")
	_, err = p.Used()["third"].Resume(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "now", next(t, p.other))
	require.NoError(t, p.Stop(t.Context()))
}
