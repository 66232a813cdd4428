package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestScriptsAgainstOracle runs random sequences of all verbs and compares
// every answer, and after every step every raw key, with the oracle.
// It checks I4, I5 and I6.
func TestScriptsAgainstOracle(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func() string{
		"redis":     func() string { return testenv.Redis(t) },
		"miniredis": func() string { return "redis://" + miniredis.RunT(t).Addr() },
	} {
		rdb := connect(t, url())
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				m := newMachine(t, rdb)
				t.Repeat(map[string]func(*rapid.T){
					"":           m.check,
					"schedule":   func(t *rapid.T) { m.schedule(t, false) },
					"replace":    func(t *rapid.T) { m.schedule(t, true) },
					"cancel":     m.cancel,
					"reschedule": m.reschedule,
					"get":        m.get,
					"claim":      m.claim,
					"claim more": m.claim,
					"claimAgain": m.claimAgain,
					"settle":     m.settle,
					"settleOld":  m.settleOld,
					"reclaim":    m.reclaim,
					"put":        m.put,
					"cancelRow":  m.cancelRow,
					"moveRow":    m.rescheduleRow,
					"forget":     m.forget,
					"lapse":      m.lapse,
					"redrive":    func(t *rapid.T) { m.dead(t, inspect.NewAdmin(m.q).Redrive, (*oracle).redrive) },
					"purge": func(t *rapid.T) {
						m.dead(t, inspect.NewAdmin(m.q).Purge, func(o *oracle, member string, _ int64) store.Code { return o.purge(member) })
					},
				})
				m.drain(t)
			})
		})
	}
}

const machineShards = 2

var (
	instances  = []string{"a", "b"}
	identities = []store.Request{
		{Message: &message.Message{ID: "1"}},
		{Message: &message.Message{ID: "2"}},
		{Message: &message.Message{ID: "1", Key: "k"}},
		{Message: &message.Message{ID: "3", Key: "k"}},
		{Message: &message.Message{ID: "12:34:x", Key: "ключ"}},
		{Message: &message.Message{ID: "%d+|*"}},
	}
)

// machine runs the verbs on a real queue and on the oracle.
type machine struct {
	rdb     *redis.Client
	q       *store.Queue
	oracles [machineShards]*oracle
	tokens  map[string]string // shard and generation → token in force, once seen
	numbers map[string]uint64
	held    [machineShards][]heldClaim
	bodies  int
	rows    []row
}

// heldClaim is a claim that an instance knows of, ended or not.
type heldClaim struct {
	request     message.ClaimRequest
	claim       message.Claim
	generations []int
}

func newMachine(t *rapid.T, rdb *redis.Client) *machine {
	queue := fmt.Sprintf("rapid-%d", time.Now().UnixNano())
	m := &machine{
		rdb: rdb, q: store.New(rdb, storetest.Prefix, queue).WithLedger(func(int) {}), tokens: map[string]string{}, numbers: map[string]uint64{},
	}
	_, err := m.q.Layouts().Ensure(t.Context(), storetest.Layout(machineShards))
	require.NoError(t, err)
	for shard := range m.oracles {
		m.oracles[shard] = newOracle()
	}
	t.Cleanup(func() { storetest.Remove(context.Background(), rdb, queue, machineShards) })
	return m
}

func (m *machine) now(t *rapid.T) int64 {
	now, err := redisNow(t.Context(), m.rdb)
	require.NoError(t, err)
	return now
}

func (m *machine) home(id, key string) (int, *oracle) {
	shard := layout.Home(key, id, machineShards)
	return shard, m.oracles[shard]
}

func drawIdentity(t *rapid.T) (id, key, member string) {
	who := rapid.SampledFrom(identities).Draw(t, "identity").Message
	return who.ID, who.Key, message.Member(who.ID, who.Key)
}

// drawTags are the headers of a message, mostly with tags.
func drawTags(t *rapid.T) map[string]string {
	tags := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "ab", "тег"}), 0, 3, rapid.ID).Draw(t, "tags")
	return must(message.WithTags(map[string]string{"another": "header"}, tags))
}

// drawWhen is long past, or an hour and more ahead.
func drawWhen(t *rapid.T) store.When {
	switch rapid.IntRange(0, 3).Draw(t, "when") {
	case 0:
		return store.When{Relative: true, Ms: never.Milliseconds() + rapid.Int64Range(0, 3).Draw(t, "delay")}
	case 1:
		return store.When{Ms: time.Now().Add(2*never).UnixMilli() + rapid.Int64Range(0, 3).Draw(t, "future")}
	default:
		return store.When{Ms: 1_000_000_000 + rapid.Int64Range(0, 3).Draw(t, "past")}
	}
}

// dueOf checks that an answer's due time is the one asked for.
func dueOf(t *rapid.T, when store.When, answer store.Answer, before, after int64) int64 {
	due := answer.DueAt.UnixMilli()
	if !when.Relative {
		require.Equal(t, when.Ms, due, "due time")
		return due
	}
	require.GreaterOrEqual(t, due, before+when.Ms, "due time")
	require.LessOrEqual(t, due, after+1+when.Ms, "due time")
	return due
}

func (m *machine) schedule(t *rapid.T, replace bool) {
	requests := make([]store.Request, rapid.IntRange(1, 5).Draw(t, "n"))
	for i := range requests {
		id, key, _ := drawIdentity(t)
		m.bodies++
		body := fmt.Sprintf("body %d", m.bodies)
		requests[i] = store.Request{
			Message: &message.Message{ID: id, Key: key, Topic: "t", Headers: drawTags(t), Body: []byte(body)}, When: drawWhen(t),
		}
	}
	before := m.now(t)
	answers := m.q.Producer().Schedule(t.Context(), requests, replace, store.Durability{})
	after := m.now(t)
	for i, answer := range answers {
		require.NoError(t, answer.Err)
		r := requests[i]
		_, o := m.home(r.Message.ID, r.Message.Key)
		member := message.Member(r.Message.ID, r.Message.Key)
		due := r.When.Ms
		if answer.Code == store.Created || answer.Code == store.Replaced {
			due = dueOf(t, r.When, answer, before, after)
		}
		require.Equal(t, o.schedule(member, string(r.Message.Body), due, replace), answer.Code, "request %d", i)
		switch e := o.entries[member]; answer.Code {
		case store.Waiting:
			require.Equal(t, e.due, answer.DueAt.UnixMilli(), "due time of the other")
		case store.Dead:
			require.Equal(t, e.reason, answer.Reason)
		default: // The other codes tell nothing more.
		}
	}
}

func (m *machine) cancel(t *rapid.T) {
	id, key, member := drawIdentity(t)
	_, o := m.home(id, key)
	answer := m.q.Producer().Cancel(t.Context(), id, key, store.Durability{})
	require.NoError(t, answer.Err)
	require.Equal(t, o.cancel(member), answer.Code)
}

func (m *machine) reschedule(t *rapid.T) {
	id, key, member := drawIdentity(t)
	_, o := m.home(id, key)
	when := drawWhen(t)
	before := m.now(t)
	answer := m.q.Producer().Reschedule(t.Context(), id, key, when, store.Durability{})
	require.NoError(t, answer.Err)
	due := when.Ms
	if answer.Code == store.Done || answer.Code == store.DoneMaybePublished {
		due = dueOf(t, when, answer, before, m.now(t))
	}
	require.Equal(t, o.reschedule(member, due), answer.Code)
}

func (m *machine) get(t *rapid.T) {
	id, key, member := drawIdentity(t)
	_, o := m.home(id, key)
	found, ok, err := inspect.Get(t.Context(), m.q, id, key)
	require.NoError(t, err)
	e := o.entries[member]
	require.Equal(t, e != nil, ok, "found")
	if e == nil {
		return
	}
	require.NoError(t, found.Err)
	require.Equal(t, e.where, found.Code)
	require.Equal(t, e.due, found.DueAt.UnixMilli())
	require.Equal(t, e.body, string(found.Body))
	require.Equal(t, e.reason, found.Reason)
	require.Equal(t, e.attempts.Begun+1, found.Attempt)
	require.Equal(t, e.attempts.MaybeOut > 0, found.MaybePublished)
	require.Equal(t, id, found.ID)
	require.Equal(t, key, found.Key)
}

// dead runs redrive or purge for drawn members, with duplicates.
func (m *machine) dead(
	t *rapid.T, run func(context.Context, []string) ([]store.Code, error), expect func(*oracle, string, int64) store.Code,
) {
	members := make([]string, rapid.IntRange(1, 4).Draw(t, "n"))
	for i := range members {
		_, _, members[i] = drawIdentity(t)
	}
	before := m.now(t)
	codes, err := run(t.Context(), members)
	require.NoError(t, err)
	after := m.now(t)
	for i, code := range codes {
		id, key := message.SplitMember(members[i])
		shard, o := m.home(id, key)
		due, _ := m.rdb.ZScore(t.Context(), storetest.Key(m.q.Name(), shard, "due"), members[i]).Result()
		want := expect(o, members[i], int64(due))
		require.Equal(t, want, code, "member %q", members[i])
		if e := o.entries[members[i]]; want == store.Done && e != nil {
			require.True(t, before <= e.due && e.due <= after+1, "redriven: due now")
		}
	}
}

// check compares all raw keys with the oracle, and checks I6.
func (m *machine) check(t *rapid.T) {
	for shard, o := range m.oracles {
		s, err := storetest.Dump(t.Context(), m.rdb, m.q.Name(), shard)
		require.NoError(t, err)
		require.NoError(t, s.Check(), "shard %d", shard)
		due, attempts, dead := map[string]int64{}, map[string]string{}, []string{}
		for member, e := range o.entries {
			if e.where == store.Waiting {
				due[member] = e.score
			}
			if e.where == store.Dead {
				dead = append(dead, member)
			} else if history := e.history(); history != "" {
				attempts[member] = history
			}
		}
		require.Equal(t, due, s.Due)
		require.Equal(t, attempts, s.Attempts)
		require.ElementsMatch(t, dead, slices.Collect(maps.Keys(s.Dead)))
		require.ElementsMatch(t, slices.Collect(maps.Keys(o.claims)), slices.Collect(maps.Keys(s.Claims)))
		delete(s.Meta, "epoch")
		delete(s.Meta, "layout")
		delete(s.Meta, "born")
		counters := map[string]string{}
		for name, n := range o.counters {
			counters[name] = fmt.Sprint(n)
		}
		require.Equal(t, counters, s.Meta, "counters")
		holder := ""
		if h := o.holder; h != nil {
			holder = fmt.Sprintf("%s|%d", h.owner, h.last)
		}
		require.Equal(t, holder, s.Holder)
		m.checkRows(t, shard, o, s)
		m.checkParked(t, shard, o, s)
		m.checkStats(t, shard, o)
	}
}

func (m *machine) checkStats(t *rapid.T, shard int, o *oracle) {
	stats, err := inspect.NewAdmin(m.q).Stats(t.Context(), shard)
	require.NoError(t, err)
	count := map[store.Code]int64{}
	parked := int64(0)
	for _, e := range o.entries {
		count[e.where]++
		if slot, _ := message.SplitScore(e.score); slot > 0 && e.where == store.Waiting {
			parked++
		}
	}
	require.Equal(t, count[store.Waiting], stats.Waiting)
	require.Equal(t, parked, stats.Parked)
	require.Equal(t, count[store.InFlight], stats.InFlight)
	require.Equal(t, count[store.Dead], stats.Dead)
	require.Equal(t, int64(len(o.claims)), stats.Claims)
	require.Equal(t, int64(len(o.rows.ledger)), stats.Ledger)
}

// checkParked compares what is parked, and the routes that are known.
func (m *machine) checkParked(t *rapid.T, shard int, o *oracle, s *storetest.Shard) {
	routes, err := m.q.Shard(shard).Parked(t.Context())
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, r := range routes {
		messages := o.slot(r.Slot)
		require.Len(t, messages, r.Messages, "slot %d", r.Slot)
		require.Equal(t, messages[0].due, r.Oldest.UnixMilli())
		if want, known := o.routes[r.Slot]; known {
			require.Equal(t, want, r.Route+"|"+r.Reason)
			require.False(t, r.Since.IsZero())
		} else {
			require.Equal(t, "|", r.Route+"|"+r.Reason)
		}
		seen[r.Slot] = true
	}
	for _, e := range o.waiting() {
		if slot, _ := message.SplitScore(e.score); slot > 0 {
			require.True(t, seen[slot], "slot %d", slot)
		}
	}
	require.Len(t, s.Routes, len(o.routes))
}
