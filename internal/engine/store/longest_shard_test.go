package store_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/recurring"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/store/turns"
	"github.com/delaybridge/delaybridge/internal/engine/store/verify"
)

// manyClaims is how many claims of a shard are open at once, where each is small.
const manyClaims = 500

// openClaims makes claims beside those that there are, each of a few messages,
// which expired as long ago as the messages were due; and as many tombstones as
// one claim removes.
func (c *crowd) openClaims(instance string, each int) (live []message.ClaimToken) {
	c.Helper()
	pipe := c.rdb.Pipeline()
	for i := range manyClaims {
		token := message.ClaimToken{Instance: instance, Number: 1<<40 + uint64(i)}
		live = append(live, token)
		pipe.HSet(c.Context(), c.key("claims"), token.String(), strings.Repeat(fmt.Sprintf("26:%d:%s", c.due.Ms, c.id(-1)), each))
		pipe.ZAdd(c.Context(), c.key("deadlines"), redisZ(token.String(), c.due.Ms))
	}
	_, err := pipe.Exec(c.Context())
	require.NoError(c, err)
	c.oldTombstones()
	return live
}

// oldTombstones are as many that are over as one script removes.
func (c *crowd) oldTombstones() {
	pipe := c.rdb.Pipeline()
	for i := range 1000 {
		token := rowToken(2_000_000 + i)
		pipe.HSet(c.Context(), c.key("gone"), token, "p")
		pipe.ZAdd(c.Context(), c.key("gonettl"), redisZ(token, c.due.Ms))
	}
	_, err := pipe.Exec(c.Context())
	require.NoError(c, err)
}

// crowdedClaim claims all it may, where many claims are open and many tombstones are to be removed.
func (c *crowd) crowdedClaim(slot int) {
	r := c.bridge.request(store.MaxBatch)
	r.Live, r.Slot = c.openClaims(c.bridge.Instance, 4), slot
	for i := range 16 {
		r.Free = append(r.Free, 100+i)
	}
	_, err := c.q.Shard(0).Claim(c.Context(), r)
	require.NoError(c, err)
}

// claimed makes a claim of all it may take, to be settled with the verdict.
func claimed(v message.Verdict) func(*crowd) {
	return func(c *crowd) {
		for c.rowsTried(); len(c.settlement.Verdicts) == 0; { // They are due within a millisecond.
			c.settlement = settlement(c.bridge.claim(store.MaxBatch), v)
		}
	}
}

func (c *crowd) settle() {
	_, err := c.q.Shard(0).Settle(c.Context(), c.settlement)
	require.NoError(c, err)
}

// smallBefore lets a claim read small messages first, and then as many large ones as it expects small.
func (c *crowd) smallBefore() {
	list := c.requests(c.body, nil)
	for i := range list[:min(4, c.n)] {
		list[i].Message.Body = nil
	}
	c.all(store.Created, c.q.Producer().Schedule(c.Context(), list, false, store.Durability{}))
}

// manyRoutes parks each message in a slot of its own.
func (c *crowd) manyRoutes() {
	claimed(parked)(c)
	for i := range c.settlement.Verdicts {
		v := &c.settlement.Verdicts[i]
		v.Slot, v.Attempts = i+1, message.Attempts{Failures: 11, Begun: 12, MaybeOut: 1}
		c.settlement.Parks = append(c.settlement.Parks, message.ParkedRoute{Slot: i + 1, Route: "route of some length", Reason: "down"})
	}
}

// manyKinds settles the messages of one claim in all ways.
func (c *crowd) manyKinds() {
	c.manyRoutes()
	kinds := []message.Verdict{acked, harassed, unknown, buriedMaybe}
	for i := range c.settlement.Verdicts[:len(c.settlement.Verdicts)*2/3] {
		c.settlement.Verdicts[i] = kinds[i%len(kinds)]
	}
}

// late makes the settlement one that comes too late.
func late(c *crowd) {
	claimed(acked)(c)
	c.reclaimStray()
}

func (c *crowd) reclaimStray() {
	_, _, err := c.q.Shard(0).Reclaim(c.Context(), message.Reclaim{Instance: c.bridge.Instance, Stray: c.settlement.Claim.Token})
	require.NoError(c, err)
}

func (c *crowd) inLedger() {
	claimed(acked)(c)
	c.settle()
	rows, err := c.q.Rows().Settled(c.Context(), 0, store.MaxBatch)
	require.NoError(c, err)
	require.NotEmpty(c, rows)
	c.rowsTold = rows
	c.oldTombstones()
}

// manyTombstones are those of a minute of busy producers.
func (c *crowd) manyTombstones() {
	for n := 0; n < 100_000; n += store.MaxBatch {
		var gone []any
		var expiry []redis.Z
		for i := range store.MaxBatch {
			gone, expiry = append(gone, rowToken(n+i), "p"), append(expiry, redisZ(rowToken(n+i), c.due.Ms))
		}
		require.NoError(c, c.rdb.HSet(c.Context(), c.key("gone"), gone...).Err())
		require.NoError(c, c.rdb.ZAdd(c.Context(), c.key("gonettl"), expiry...).Err())
	}
}

// beats are those of many instances.
func (c *crowd) beats() {
	var beats []redis.Z
	for i := range 500 {
		beats = append(beats, redisZ(message.NewInstance(fmt.Sprint("bridge-", i)), c.due.Ms+never.Milliseconds()))
	}
	require.NoError(c, c.rdb.ZAdd(c.Context(), storetest.Prefix+":"+c.q.Name()+":instances", beats...).Err())
}

// eval runs a script that no call of ours runs alone.
func (c *crowd) eval(script string, keys ...string) {
	for i, key := range keys {
		keys[i] = c.key(key)
	}
	require.NoError(c, c.rdb.EvalSha(c.Context(), scriptSHA(script), keys).Err())
}

func (c *crowd) get(id string) {
	_, _, err := inspect.Get(c.Context(), c.q, id, "")
	require.NoError(c, err)
}

// mended is what verify mends first.
func (c *crowd) mended() (kind string) {
	require.NoError(c, verify.Run(c.Context(), c.q, verify.Options{Mend: true}, func(b verify.Breach) error {
		if b.Mended && kind == "" {
			kind = string(b.Kind)
		}
		return nil
	}))
	return kind
}

// shards changes how many there are, and looks for what has another home.
func (c *crowd) shards() {
	_, err := c.q.Layouts().SetShards(c.Context(), 2)
	require.NoError(c, err)
	require.NoError(c, c.q.NewKeeper().Step(c.Context()))
}

// start starts a job and takes it.
func (c *crowd) start(spec job.Spec) *job.Run {
	jobs := job.New(c.q)
	id, err := jobs.Start(c.Context(), spec)
	require.NoError(c, err)
	run, err := jobs.Take(c.Context(), id, "a")
	require.NoError(c, err)
	return run
}

// job starts a job for all messages.
func (c *crowd) job() *job.Run {
	return c.start(job.Spec{Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}})
}

// shardCalls are those of pollers and operators.
var shardCalls = []crowdCall{
	{name: "claim", before: (*crowd).waiting, call: func(c *crowd) { c.bridge.claim(store.MaxBatch) }},
	{name: "claim, small ones before", before: (*crowd).smallBefore, call: func(c *crowd) { c.bridge.claim(store.MaxBatch) }},
	{name: "claim, all tried before, many claims", before: (*crowd).rowsTried, call: func(c *crowd) { c.crowdedClaim(0) }},
	{name: "claim of a slot, many claims", before: func(c *crowd) { c.rowsTried(); c.settleAll(parked) }, call: func(c *crowd) {
		c.crowdedClaim(parked.Slot)
	}},
	{name: "claim, the same again", before: claimed(acked), call: func(c *crowd) {
		r := c.bridge.request(store.MaxBatch)
		r.Token = c.settlement.Claim.Token
		claim, err := c.q.Shard(0).Claim(c.Context(), r)
		require.NoError(c, err)
		require.Len(c, claim.Messages, len(c.settlement.Claim.Messages))
	}},
	{name: "settle ack", before: claimed(acked), call: (*crowd).settle},
	{name: "settle retry", before: claimed(harassed), call: (*crowd).settle},
	{name: "settle release", before: claimed(unknown), call: (*crowd).settle},
	{name: "settle park", before: (*crowd).manyRoutes, call: (*crowd).settle},
	{name: "settle dead letter", before: claimed(buriedMaybe), call: (*crowd).settle},
	{name: "settle, all kinds", before: (*crowd).manyKinds, call: (*crowd).settle},
	{name: "settle drop", before: claimed(dropped), call: (*crowd).settle},
	{name: "settle part", before: func(c *crowd) { claimed(onceCall)(c); c.settlement.Verdicts[0] = acked }, call: (*crowd).settle},
	{name: "mark", before: late, call: (*crowd).settle},
	{name: "reclaim", before: func(c *crowd) { claimed(acked)(c); c.openClaims("another", 4) }, call: (*crowd).reclaimStray},
	{name: "reclaim of a slot", before: func(c *crowd) {
		c.rowsTried()
		c.settleAll(parked)
		c.settlement.Claim = c.bridge.claimSlot(parked.Slot, store.MaxBatch)
	}, call: (*crowd).reclaimStray},
	{name: "reclaim of another's", before: func(c *crowd) {
		claimed(acked)(c)
		c.openClaims(c.bridge.Instance, 4)
		require.NoError(c, c.rdb.Set(c.Context(), c.key("holder"), "next|1|1", lease).Err())
	}, call: func(c *crowd) {
		_, more, err := c.q.Shard(0).Reclaim(c.Context(), message.Reclaim{Instance: "next", Foreign: true})
		require.NoError(c, err)
		require.True(c, more)
	}},
	{name: "settle ack, tagged", before: tagged(claimed(acked)), call: (*crowd).settle},
	{name: "tagged", before: tagged((*crowd).tried), call: func(c *crowd) {
		page, err := inspect.NewAdmin(c.q).List(c.Context(), inspect.ListRequest{Filter: inspect.Filter{Tag: c.tags[0]}, Limit: inspect.MaxList})
		require.NoError(c, err)
		require.Len(c, page.Messages, c.n)
	}},
	{name: "jobstart", before: (*crowd).waiting, call: func(c *crowd) { c.job() }},
	{name: "jobkeep", before: (*crowd).waiting, call: func(c *crowd) {
		_, err := c.job().Step(c.Context(), store.MaxBatch)
		require.NoError(c, err)
	}},
	{name: "members", before: (*crowd).waiting, call: func(c *crowd) {
		run := c.start(job.Spec{Verb: job.Reschedule, Filter: inspect.Filter{Topic: "another"}, By: time.Hour})
		for !run.Job().State.Ended() {
			_, err := run.Step(c.Context(), store.MaxBatch)
			require.NoError(c, err)
		}
		require.Zero(c, run.Job().Tally)
	}},
	{name: "parked", before: func(c *crowd) { c.manyRoutes(); c.settle() }, call: func(c *crowd) {
		routes, err := c.q.Shard(0).Parked(c.Context())
		require.NoError(c, err)
		require.Len(c, routes, len(c.settlement.Verdicts))
	}},
	{name: "get", before: (*crowd).tried, call: func(c *crowd) { c.get(c.id(0)) }},
	{name: "get of a dead id", before: (*crowd).dead, call: func(c *crowd) { c.get(c.id(0)) }},
	{name: "get in flight, many claims", before: func(c *crowd) { claimed(acked)(c); c.openClaims("another", 60) }, call: func(c *crowd) {
		c.get(c.settlement.Claim.Messages[len(c.settlement.Claim.Messages)-1].ID)
	}},
	{name: "forget", before: (*crowd).inLedger, call: func(c *crowd) {
		require.NoError(c, c.q.Rows().ForgetFates(c.Context(), 0, c.rowsTold))
	}},
	{name: "stats", before: func(c *crowd) { claimed(acked)(c); c.openClaims("another", 4) }, call: func(c *crowd) {
		_, err := inspect.NewAdmin(c.q).Stats(c.Context(), 0)
		require.NoError(c, err)
	}},
	{name: "page", before: (*crowd).waiting, call: func(c *crowd) {
		_, err := inspect.NewAdmin(c.q).List(c.Context(), inspect.ListRequest{Limit: inspect.MaxList})
		require.NoError(c, err)
	}},
	{name: "page, behind one of many that are due at once", before: (*crowd).waiting, call: func(c *crowd) {
		first, err := inspect.NewAdmin(c.q).List(c.Context(), inspect.ListRequest{Limit: 1})
		require.NoError(c, err)
		_, err = inspect.NewAdmin(c.q).List(c.Context(), inspect.ListRequest{Limit: inspect.MaxList, After: first.Next})
		require.NoError(c, err)
	}},
	{name: "heartbeat", before: (*crowd).beats, call: func(c *crowd) {
		_, _, err := c.q.Members().Heartbeat(c.Context(), "me/1", time.Minute)
		require.NoError(c, err)
	}},
	{name: "rate", before: (*crowd).nobody, call: func(c *crowd) {
		asked := make([]message.RateRequest, 500)
		for i := range asked {
			asked[i] = message.RateRequest{Topic: fmt.Sprint("topic ", i), Rate: 7, Messages: 1}
		}
		_, err := c.q.Members().TakeRates(c.Context(), asked)
		require.NoError(c, err)
	}},
	{name: "pause", before: (*crowd).beats, call: func(c *crowd) {
		_, err := inspect.NewAdmin(c.q).Pause(c.Context(), "t", "ann")
		require.NoError(c, err)
		_, err = inspect.NewAdmin(c.q).Resume(c.Context(), "t")
		require.NoError(c, err)
	}},
	{name: "recurring", before: (*crowd).waiting, call: func(c *crowd) {
		all := recurring.New(c.q, store.Durability{})
		_, _, err := all.Set(c.Context(), "largest", recurring.Spec{Cron: "@daily", Topic: "t", Body: make([]byte, recurring.MaxTemplate-1024)})
		require.NoError(c, err)
		_, err = all.Delete(c.Context(), "largest")
		require.NoError(c, err)
	}},
	{name: "turns", before: (*crowd).nobody, call: func(c *crowd) {
		all, waiting := turns.New(c.q, store.Durability{}), make([]turns.Waiting, turns.Most)
		for i := range waiting {
			waiting[i] = turns.Waiting{Origin: strings.Repeat("o", 200), Stay: "0123456789", Number: i, DueMs: 1 << 40}
		}
		none, err := all.Get(c.Context(), "t", "k")
		require.NoError(c, err)
		largest, err := all.Put(c.Context(), "t", "k", none, waiting, time.Hour)
		require.NoError(c, err)
		_, err = all.Put(c.Context(), "t", "k", largest, waiting, time.Hour)
		require.NoError(c, err)
	}},
	{name: "declare", before: (*crowd).nobody, call: func(c *crowd) {
		all := declared.New(hookedClient{c.rdb}, c.q.Name(), store.DefaultTimeout)
		none, now, err := all.Read(c.Context())
		require.NoError(c, err)
		largest := none.With("largest", fmt.Appendf(nil, "%q", strings.Repeat("x", declared.MaxBytes-1000)), "ann", now)
		require.NoError(c, all.Replace(c.Context(), none, largest))
		require.NoError(c, all.Replace(c.Context(), largest, largest.With("another", []byte("{}"), "ann", now)))
		_, _, err = all.Read(c.Context())
		require.NoError(c, err)
		require.NoError(c, c.rdb.Del(c.Context(), keys.Queue{Prefix: c.q.Name()}.Declared()).Err())
	}},
	{name: "budget", before: (*crowd).waiting, call: func(c *crowd) {
		_, err := inspect.NewAdmin(c.q).Limit(c.Context(), 1<<30)
		require.NoError(c, err)
	}},
	{name: "leave", before: (*crowd).beats, call: func(c *crowd) { require.NoError(c, c.q.Members().Leave(c.Context(), "me/1")) }},
	{name: "handover", before: claimed(acked), call: func(c *crowd) { require.NoError(c, c.q.Shard(0).HandOver(c.Context(), c.bridge.Instance)) }},
	{name: "layout", before: (*crowd).nobody, call: func(c *crowd) {
		_, err := c.q.LoadLayout(c.Context())
		require.NoError(c, err)
	}},
	{name: "change", before: (*crowd).waiting, call: (*crowd).shards},
	{name: "fence", before: (*crowd).waiting, call: (*crowd).shards},
	{name: "scan", before: (*crowd).rowsTried, call: (*crowd).shards},
	{name: "drained", before: (*crowd).nobody, call: (*crowd).shards},
	{name: "drop", before: (*crowd).manyTombstones, call: func(c *crowd) {
		c.eval("drop", "meta", "msg", "dead", "claims", "settled", "due", "deadlines", "attempts", "gone", "gonettl", "deadmsg", "holder", "routes", "tags")
	}},
	{name: "confirm", before: claimed(acked), call: func(c *crowd) {
		here, err := c.rdb.EvalSha(c.Context(), scriptSHA("confirm"), []string{c.key("claims")}, c.settlement.Claim.Token.String()).Bool()
		require.NoError(c, err)
		require.True(c, here)
	}},
	{name: "mend", before: claimed(acked), call: func(c *crowd) {
		require.NoError(c, c.rdb.HSet(c.Context(), c.key("msg"), "lost", c.body).Err())
		require.Equal(c, "nowhere", c.mended())
	}},
	{name: "oncebegin", before: (*crowd).nobody, call: func(c *crowd) { once(c, c.q, "longest", store.OnceBegun) }},
	{name: "onceend", before: (*crowd).nobody, call: func(c *crowd) {
		require.NoError(c, once(c, c.q, "end", store.OnceBegun).Answered(c.Context(), c.body))
	}},
	{name: "touch", before: (*crowd).waiting, call: func(c *crowd) { c.eval("touch", "meta") }},
}
