package rates

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api/access/accesstest"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// fault is something that happens to a fleet of one bridge, "a".
type fault struct {
	// with is what the fleet is like before; nil: as usual.
	with   func(f *fleet)
	strike func(a *alarms)
	// fires are the alerts on it.
	fires []string
}

// faults are at least one for each alert.
var faults = map[string]fault{
	"no bridge": {
		strike: func(a *alarms) { a.stops["a"]() },
		fires:  []string{"DelaybridgeDown"},
	},
	"a bridge that is not reached": {
		strike: func(a *alarms) { a.hidden("a") },
		fires:  []string{"DelaybridgeDown"},
	},
	"a bridge that hangs": { // It is not scraped, and others do not get its leases.
		strike: func(a *alarms) {
			a.start("b")
			a.held("a", "b")
			a.silent(4)
			a.hidden("b")
		},
		fires: []string{"DelaybridgeInstanceDown", "DelaybridgeShardsWithoutHolder"},
	},
	"one of two bridges is gone": {
		strike: func(a *alarms) {
			a.start("b")
			a.held("a", "b")
			a.silent(4)
			a.stops["b"]()
			a.held("a")
		},
		fires: []string{"DelaybridgeInstanceDown"},
	},
	"Redis is away": {
		with:   func(f *fleet) { f.through(&f.redis) },
		strike: func(a *alarms) { a.cut() },
		fires:  []string{"DelaybridgeShardsWithoutHolder"},
	},
	"Redis is away at the start": {
		with: func(f *fleet) { f.through(&f.redis) },
		strike: func(a *alarms) {
			a.stops["a"]()
			a.cut()
			a.start("a")
			a.shows("delaybridge_build_info", exactly(1))
		},
		fires: []string{"DelaybridgeShardsWithoutHolder"},
	},
	"Redis loses a shard": {
		strike: func(a *alarms) {
			keys, err := a.rdb.Keys(a.t.Context(), fmt.Sprintf("%s:{orders:1}:*", a.prefix)).Result()
			require.NoError(a.t, err)
			require.NoError(a.t, a.rdb.Del(a.t.Context(), keys...).Err())
			a.lost()
		},
		fires: []string{"DelaybridgeShardsLost"},
	},
	"Redis loses everything": {
		with: ownRedis,
		strike: func(a *alarms) {
			a.own.Kill()
			a.own.Start()
			a.lost()
		},
		fires: []string{"DelaybridgeShardsLost"},
	},
	"a replica is away": {
		with: func(f *fleet) {
			primary := testenv.StartRedis(f.t, "--repl-diskless-sync-delay", "0")
			f.own = testenv.StartRedis(f.t, "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
			f.redis, f.keys = primary.URL(), ", durability: replicas"
		},
		strike: func(a *alarms) {
			a.own.Kill()
			a.shows("delaybridge_durable", exactly(0))
		},
		fires: []string{"DelaybridgeNotDurable"},
	},
	"a budget that is used up": {
		with: func(f *fleet) { f.keys = ", budget: {bytes: 32KiB}" },
		strike: func(a *alarms) {
			a.fill()
			a.shows("delaybridge_full_seconds", atMost(60))
		},
		fires: []string{"DelaybridgeFullSoon"},
	},
	"the broker is away": {
		with: func(f *fleet) { f.through(&f.broker) },
		strike: func(a *alarms) {
			a.traffic(5, 0, 0)
			a.cut()
			a.shows("delaybridge_sink_up", exactly(0))
		},
		fires: []string{"DelaybridgeSinkDown"},
	},
	"the broker is away while messages are due": {
		with: func(f *fleet) { f.through(&f.broker) },
		strike: func(a *alarms) {
			a.cut()
			a.one(ago(time.Hour))
			a.shows("delaybridge_sink_up", exactly(0))
			a.shows("delaybridge_oldest_due_age_seconds", atLeast(3600))
		},
		fires: []string{"DelaybridgeLate", "DelaybridgeSinkDown"},
	},
	"one bridge does not reach the broker": {
		strike: func(a *alarms) {
			a.through(&a.broker)
			a.start("b")
			a.held("a", "b")
			a.ready("b")
			a.cut()
			a.shows("delaybridge_sink_up", exactly(0))
		},
		fires: []string{"DelaybridgeSinkDownForSome"},
	},
	"the broker is away for seconds, again and again": {
		with: func(f *fleet) { f.through(&f.broker) },
		strike: func(a *alarms) {
			a.outage()
			a.silent(12)
			a.outage()
		},
		fires: []string{"DelaybridgeLateness"},
	},
	"answers of the broker are lost, again and again": {
		with: func(f *fleet) { f.through(&f.broker) },
		strike: func(a *alarms) {
			for n := range 2 {
				a.unanswered(n + 1)
				a.silent(2 * batch)
			}
			a.unanswered(3)
		},
		fires: []string{"DelaybridgeDuplicates"},
	},
	"more is due than the queue may publish": {
		with: func(f *fleet) { f.keys = ", rate: {messages: 4}" },
		strike: func(a *alarms) {
			for range 800 {
				a.one(ago(time.Hour))
			}
			a.shows("delaybridge_oldest_due_age_seconds", atLeast(3600))
		},
		fires: []string{"DelaybridgeLate", "DelaybridgeLateness"},
	},
	"more is due than a topic may have": {
		with: func(f *fleet) { f.keys = ", rate: {topics: [" + f.topic + "=4]}" },
		strike: func(a *alarms) {
			for range 800 {
				a.one(ago(time.Hour))
			}
			a.shows("delaybridge_parked", atLeast(1))
		},
		fires: []string{"DelaybridgeLateness"}, // Nothing is parked for a fault.
	},
	"a canary that does not arrive": {
		with: func(f *fleet) { f.keys = ", canary: {topic: " + f.topic + ", every: 1s}" },
		strike: func(a *alarms) {
			for n := range 4 {
				a.shows("delaybridge_canary_seconds_count", atLeast(float64(2*n+2)))
				a.silent(20)
			}
			require.NoError(a.t, a.js.DeleteStream(a.t.Context(), a.topic))
			a.shows("delaybridge_parked", atLeast(1))
		},
		fires: []string{"DelaybridgeCanary", "DelaybridgeParked"},
	},
	"a topic that nobody has made": {
		strike: missing,
		fires:  []string{"DelaybridgeParked"},
	},
	"a topic that nobody has made, while another is paused": {
		strike: func(a *alarms) {
			a.pause(a.topic)
			a.one(delay.After(0))
			missing(a)
		},
		fires: []string{"DelaybridgeParked"},
	},
	"a queue that somebody has forgotten to resume": {
		strike: func(a *alarms) {
			a.pause("")
			a.one(ago(time.Hour))
			a.shows("delaybridge_oldest_due_age_seconds", atLeast(3600))
			a.silent(1400) // Nearly six hours: it is meant to be late.
		},
		fires: []string{"DelaybridgePaused"},
	},
	"messages that cannot be read": {
		strike: func(a *alarms) {
			a.traffic(5, 0, 3)
			a.shows("delaybridge_decode_errors_total", atLeast(1))
		},
		fires: []string{"DelaybridgeDeadLetters", "DelaybridgeDecodeErrors"},
	},
	"messages that come too late": {
		with: func(f *fleet) { f.keys = lateKeys },
		strike: func(a *alarms) {
			a.one(ago(time.Hour))
			a.shows("delaybridge_dead_lettered_total", exactly(1))
		},
		fires: []string{"DelaybridgeDeadLetters"},
	},
	"an issuer's keys cannot be read": {
		with: issued,
		strike: func(a *alarms) {
			require.NoError(a.t, os.Remove(a.issuerKeys))
			a.shows("delaybridge_issuer_up", exactly(0))
		},
		fires: []string{"DelaybridgeIssuerDown"},
	},
	"one of two bridges does not reach an issuer": {
		with: issued,
		strike: func(a *alarms) {
			a.auth = issuer(fmt.Sprintf("jwks_url: http://127.0.0.1:%s/keys", testenv.Port(a.t)))
			a.start("b")
			a.held("a", "b")
			a.shows("delaybridge_issuer_up", exactly(0))
		},
		fires: []string{"DelaybridgeIssuerDown"},
	},
	"a queue file is wrong": {
		with: func(f *fleet) { f.teams = f.t.TempDir() },
		strike: func(a *alarms) {
			require.NoError(a.t, os.WriteFile(filepath.Join(a.teams, "shop.yaml"), []byte("queues: {carts: {sink: nowhere}}\n"), 0o600))
			a.shows("delaybridge_queue_files_wrong", exactly(1))
		},
		fires: []string{"DelaybridgeQueueFileWrong"},
	},
	"Redis loses what was declared by the API": {
		with: func(f *fleet) { f.isDeclared = true },
		strike: func(a *alarms) {
			a.declare("carts", `{"sink": "events", "shards": 2}`, 2)
			a.silent(4)
			require.NoError(a.t, a.rdb.Del(a.t.Context(), a.prefix+":{queues}").Err())
			a.shows("delaybridge_declarations_lost_total", exactly(1))
		},
		fires: []string{"DelaybridgeDeclarationsLost"},
	},
	"the database is away": {
		with: func(f *fleet) {
			outboxed(f)
			f.through(&f.database)
		},
		strike: func(a *alarms) {
			a.cut()
			a.shows("delaybridge_outbox_up", exactly(0))
		},
		fires: []string{"DelaybridgeOutboxDown"},
	},
	"Redis is full, and rows wait": {
		with: func(f *fleet) {
			outboxed(f)
			ownRedis(f)
		},
		strike: func(a *alarms) {
			require.NoError(a.t, a.rdb.ConfigSet(a.t.Context(), "maxmemory", "1").Err())
			a.waitingRow()
		},
		fires: []string{"DelaybridgeOutboxBehind"},
	},
	"Redis is away, and rows wait": {
		with: func(f *fleet) {
			outboxed(f)
			f.through(&f.redis)
		},
		strike: func(a *alarms) {
			a.cut()
			a.waitingRow()
		},
		fires: []string{"DelaybridgeOutboxBehind", "DelaybridgeShardsWithoutHolder"},
	},
	"a transaction that nobody ends": {
		with:   outboxed,
		strike: lockedRow,
		fires:  []string{"DelaybridgeOutboxOverdue"},
	},
	"many messages are late, since the broker was away": {
		with: func(f *fleet) { f.through(&f.broker) },
		strike: func(a *alarms) {
			before := a.done()
			a.cut()
			for range many {
				a.one(delay.After(0))
			}
			a.shows("delaybridge_oldest_due_age_seconds", atLeast(6))
			a.mend()
			a.await("they are published", func() bool { return a.done() == before+many })
			a.shows("delaybridge_sink_up", exactly(1))
			a.settle()
		},
		fires: []string{"DelaybridgeLateBurn", "DelaybridgeLateBurnSlow"},
	},
	"many messages are late, since their queue was paused": {
		strike: func(a *alarms) {
			before := a.done()
			a.pause("")
			for range many {
				a.one(delay.After(0))
			}
			a.shows("delaybridge_oldest_due_age_seconds", atLeast(6))
			a.silent(4)
			_, err := inspect.NewAdmin(a.queue).Resume(a.t.Context(), "")
			require.NoError(a.t, err)
			a.await("they are published", func() bool { return a.done() == before+many })
			a.settle()
			a.silent(2 * batch)
		},
	},
	"calls fail, since Redis is full": {
		with: ownRedis,
		strike: func(a *alarms) {
			require.NoError(a.t, a.rdb.ConfigSet(a.t.Context(), "maxmemory", "1").Err())
			a.refused(1) // A counter that appears has not grown.
			a.silent(4)
			a.refused(many)
		},
		fires: []string{"DelaybridgeCallsBurn", "DelaybridgeCallsBurnSlow"},
	},
	"Redis loses the message of a row": {
		with: outboxed,
		strike: func(a *alarms) {
			a.row(delay.After(30 * time.Minute))
			a.await("the row is stored", func() bool { return a.rows(stored) == 1 })
			a.lose(fmt.Sprint("row", a.sent))
			a.await("it is back", func() bool { return a.putBack() == 1 })
			a.settle()
		},
		fires: []string{"DelaybridgePutBack"},
	},
	"a row's message that comes too late": {
		with: func(f *fleet) {
			outboxed(f)
			f.keys += lateKeys
		},
		strike: func(a *alarms) {
			a.row(ago(time.Hour))
			a.shows("delaybridge_dead_lettered_total", exactly(1))
			a.shows("delaybridge_outbox_overdue", atLeast(0))
		},
		fires: []string{"DelaybridgeDeadLetters"},
	},
}

// many are more than what alerts of the service levels leave alone.
const many = 40

// lateKeys make dead letters of messages that are late.
const lateKeys = ", late: {after: 1m, then: dead}"

// issued has the fleet take JWTs of an issuer whose keys are in a file.
func issued(f *fleet) {
	f.issuerKeys = filepath.Join(f.t.TempDir(), "keys")
	accesstest.NewSigner(f.t, "https://login.example.com", "k1").Publish(f.t, f.issuerKeys)
	f.auth = issuer("jwks_file: " + f.issuerKeys)
}

// issuer is the configuration of one, whose keys are there.
func issuer(keys string) string {
	return "issuers: {corp: {url: https://login.example.com, audiences: [bridge], " + keys + ", callers: ['sub=* viewer']}}"
}

// declare declares a queue of so many shards by the API, and waits until all bridges have it and poll it.
func (f *fleet) declare(name, queue string, shards int) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPut, "http://"+f.addresses["a"]+"/api/v1/declarations/"+name, strings.NewReader(queue))
	require.NoError(f.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(f.t, err)
	require.NoError(f.t, response.Body.Close())
	require.Equal(f.t, http.StatusCreated, response.StatusCode)
	f.await(name+" is polled", func() bool {
		held := 0
		for bridge := range f.addresses {
			page := f.page(bridge, "/metrics")
			if !strings.Contains(page, `queue="`+name+`"} 1`) {
				return false
			}
			held += strings.Count(page, `delaybridge_shard_waiting{queue="`+name+`"`)
		}
		return held == shards
	})
}

// ownRedis gives the fleet a Redis that nobody else has.
func ownRedis(f *fleet) {
	f.own = testenv.StartRedis(f.t)
	f.redis = f.own.URL()
}

// lost waits until it is seen that Redis has lost shards, and they are polled again.
func (f *fleet) lost() {
	f.t.Helper()
	f.shows("delaybridge_shards_lost_total", atLeast(1))
	f.held("a")
}

// outage takes the broker away while a message is due, and waits until that is over.
func (f *fleet) outage() {
	f.t.Helper()
	before := f.done()
	f.cut()
	f.one(delay.After(0))
	f.shows("delaybridge_oldest_due_age_seconds", atLeast(6))
	f.mend()
	f.await("it is published", func() bool { return f.done() == before+1 })
	f.shows("delaybridge_sink_up", exactly(1))
	f.settle()
}

// unanswered has a message published without the bridge hearing of it, so that a copy
// follows: the n-th.
func (f *fleet) unanswered(n int) {
	f.t.Helper()
	before := f.stored()
	f.link.SwallowReplies(true)
	f.one(delay.After(0))
	f.await("the broker has it", func() bool { return f.stored() > before })
	f.link.SwallowReplies(false)
	f.link.Cut()
	f.shows("delaybridge_suspected_duplicates_total", atLeast(float64(n)))
	f.shows("delaybridge_sink_up", exactly(1))
	f.settle()
}

// refused has the API refuse so many messages, since Redis takes none.
func (f *fleet) refused(times int) {
	f.t.Helper()
	for range times {
		body := strings.NewReader(fmt.Sprintf(`{"topic": %q, "in": "1h"}`, f.topic))
		request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "http://"+f.addresses["a"]+"/api/v1/queues/orders/messages", body)
		require.NoError(f.t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		require.NoError(f.t, err)
		require.NoError(f.t, response.Body.Close())
		require.Equal(f.t, http.StatusInsufficientStorage, response.StatusCode)
	}
}

// lose has Redis lose all of a message.
func (f *fleet) lose(id string) {
	f.t.Helper()
	layout, err := f.queue.LoadLayout(f.t.Context())
	require.NoError(f.t, err)
	shard := fmt.Sprintf("%s:{orders:%d}:", f.prefix, layout.Home(id, ""))
	require.NoError(f.t, f.rdb.HDel(f.t.Context(), shard+"msg", id).Err())
	require.NoError(f.t, f.rdb.ZRem(f.t.Context(), shard+"due", id).Err())
}

// putBack is how many messages the bridges have put back.
func (f *fleet) putBack() (n int) {
	f.t.Helper()
	for _, address := range f.addresses {
		for _, found := range f.fetch(address) {
			if found.Get(model.MetricNameLabel) == "delaybridge_outbox_audited_total" && found.Get("result") == "put_back" {
				n += int(valueOf(f.t, found))
			}
		}
	}
	return n
}

// missing schedules a message for a topic that the broker does not have.
func missing(a *alarms) {
	a.t.Helper()
	_, err := a.client.Schedule(a.t.Context(), delay.Message{Topic: testenv.Name(a.t, "missing")}, delay.After(0))
	require.NoError(a.t, err)
	a.shows("delaybridge_sink_missing", exactly(1))
}
