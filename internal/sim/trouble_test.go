package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/poller"
)

// ofTopics are the troubles of topics at the broker.
var ofTopics = []string{"hang", "full", "missing", "nack", "slow"}

// ofSink are the troubles in which other topics are published all the same, as fast as the rates allow.
var ofSink = append([]string{"rate"}, ofTopics...)

// ofRows are the troubles in which the rules of the outbox hold to the letter.
var ofRows = append([]string{
	"redis down", "redis flaky", "slow redis", "pause", "crash", "stall", "takeover", "order", "history",
	"outbox", "outbox", "outbox", "database away", "database flaky", "slow database", "auditor",
}, ofTopics...)

// conditions are what may be the matter at a time. Each pair of them must have met.
var conditions = []string{
	"hang", "full", "missing", "nack", "slow", "broker down", "redis down", "redis flaky", "slow redis", "clock", "pause", "rate", "drain", "crash",
	"two holders", "stall", "reshard", "job", "late policy", "restore", "no replicas", "takeover", "order", "history", "budget", "wipe", "cancel all", "once", "lost shard", "recurring",
	"outbox", "database away", "database flaky", "slow database", "database clock", "auditor", // Only where there is an outbox.
}

// operator is a process of those who operate the queue.
type operator struct {
	h     *host
	rdb   *redis.Client
	queue *store.Queue
}

func (w *world) startOperator() *operator {
	o := &operator{h: w.newHost("operator")}
	o.rdb = o.h.client()
	o.queue = store.New(o.rdb, prefix, queueName)
	return o
}

// trouble is what one decision does.
func (w *world) trouble(d *decision) {
	random := d.random()
	topic := simTopics[random.IntN(len(simTopics)-1)] // One is always well.
	lasts := between(random, 200*time.Millisecond, 30*time.Second)
	mode := func() {
		w.during(d.kind, lasts, func() { w.broker.modes[topic] = d.kind }, func() { delete(w.broker.modes, topic) })
	}
	anyBridge := func(do func(*bridge)) {
		if all := w.plan.fleet.all; len(all) > 0 {
			do(all[random.IntN(len(all))])
		}
	}
	act := func(name string, run func(*actor)) { w.actor(fmt.Sprint(name, d.index), random, run) }
	switch d.kind {
	case "hang", "full", "missing", "nack", "slow": // See ofTopics.
		mode()
	case "broker down":
		w.during(d.kind, lasts, func() { w.broker.isDown = true }, func() { w.broker.isDown = false })
	case "redis down":
		w.during(d.kind, min(lasts, 15*time.Second), func() { w.redis.leave(true) }, func() { w.redis.leave(false) })
	case "redis flaky":
		focus := random.IntN(9)
		w.during(d.kind, lasts, func() { w.redis.isFlaky, w.redis.focus = true, focus }, func() { w.redis.isFlaky = false })
	case "slow redis":
		w.slowRedis(lasts)
	case "no replicas":
		if w.plan.durable {
			w.doubt(d, random, topic)
			return
		}
		w.during(d.kind, lasts, func() { w.redis.replicas = false }, func() { w.redis.replicas = true })
	case "clock":
		by := time.Duration(random.IntN(1200)-600) * time.Second
		w.during(d.kind, lasts, func() { w.redis.set(by) }, func() {
			if !w.healed {
				w.redis.set(0)
			}
		})
	case "pause":
		if random.IntN(3) == 0 {
			topic = ""
		}
		w.during(d.kind, lasts, func() { act("pause", func(a *actor) { a.pause(topic) }) }, func() { act("resume", func(a *actor) { a.resume(topic) }) })
	case "rate":
		rates := poller.Rates{Messages: random.IntN(40), Topics: map[string]int{topic: 1 + random.IntN(20)}}
		w.during(d.kind, lasts, func() { w.rate(rates) }, func() { w.rate(poller.Rates{}) })
	case "late policy":
		late := message.Late{After: time.Duration(1+random.IntN(30)) * time.Second, Then: []message.LateAction{message.LateDead, message.LateDrop}[random.IntN(2)]}
		for _, l := range w.model.lives {
			l.mayBeLate = true
		}
		w.during(d.kind, lasts, func() { w.change(func(p *poller.Policy) { p.Late = late }) }, func() { w.change(func(p *poller.Policy) { p.Late = message.Late{} }) })
	case "drain":
		w.during(d.kind, min(lasts, 5*time.Second), func() { anyBridge(func(b *bridge) { b.drain(10*time.Second, func(error) {}) }) }, func() { w.startBridge() })
	case "crash":
		w.during(d.kind, min(lasts, 5*time.Second), func() { anyBridge((*bridge).crash) }, func() { w.startBridge() })
	case "two holders": // A bridge more: the shards move.
		w.during(d.kind, lasts, func() { w.startBridge() }, func() {})
	case "stall":
		lasts = min(lasts, 12*time.Second)
		anyBridge(func(b *bridge) { w.stall(b.h, lasts) })
	case "reshard":
		shards := 1 + random.IntN(4)
		w.model.layouts = append(w.model.layouts, w.now())
		w.during(d.kind, max(lasts, 10*time.Second), func() {
			if random.IntN(2) == 0 { // Something is replaced, or redriven, while a shard is looked through.
				w.slowRedis(20 * time.Second)
				w.hot(d, random, "", 20*time.Second)
				act("letters", (*actor).letters)
			}
			act("reshard", func(a *actor) { a.reshard(shards) })
		}, func() {})
	case "job":
		key := fmt.Sprintf("k%d", random.IntN(4))
		w.during(d.kind, max(lasts, 5*time.Second), func() {
			if random.IntN(2) == 0 {
				w.hot(d, random, key, 5*time.Second)
			}
			if random.IntN(3) == 0 { // Another message has the id by the time that the job is about it.
				w.slowRedis(5 * time.Second)
			}
			if random.IntN(3) == 0 {
				act("letters", (*actor).letters)
				return
			}
			act("job", func(a *actor) { a.job(key) })
		}, func() {})
	case "restore":
		shard, ago := random.IntN(3), min(lasts, 5*time.Second)
		if !w.plan.box.isThere || random.IntN(3) > 0 {
			if random.IntN(2) == 0 { // What is being published then was never claimed.
				w.slowBroker(ago + time.Second)
			}
			w.restore(shard, ago)
			return
		}
		w.boxBurst(d) // A row is rescheduled, and what it was before is being published when the auditor comes.
		w.after(1500*time.Millisecond, "", func() {
			w.restore(shard, ago)
			w.after(ago-time.Millisecond, "", func() {
				w.during("hang", 15*time.Second, func() { w.broker.modes[topic] = "hang" }, func() { delete(w.broker.modes, topic) })
			})
		})
	case "takeover": // Of one that does not know yet that it was.
		lasts = lease + lasts/4
		if len(w.plan.fleet.all) < 2 {
			w.startBridge()
		}
		stall := func() { anyBridge(func(b *bridge) { w.stall(b.h, lasts) }) }
		switch random.IntN(3) {
		case 0: // What it has published, nobody else can publish before it tells so.
			w.boxBurst(d)
			w.slowBroker(3 * time.Second)
			w.after(between(random, 500*time.Millisecond, 2*time.Second), "", stall)
			w.during("broker down", lasts+5*time.Second, func() { w.after(3*time.Second, "", func() { w.broker.isDown = !w.healed }) }, func() { w.broker.isDown = false })
		case 1: // Who takes it over is held up a moment later, and does not know either that somebody else has it then.
			w.plan.fleet.weak = w.now() + 2*lasts
			w.order(d, random, topic)
			w.slowBroker(3 * lasts)
			w.after(between(random, 500*time.Millisecond, 2*time.Second), "", stall)
		default:
			stall()
		}
	case "order":
		w.during(d.kind, min(lasts, 5*time.Second), func() { w.order(d, random, topic) }, func() {})
	case "history":
		h := layout.History{Count: 1 + random.IntN(200), Age: between(random, time.Second, time.Hour)}
		w.during(d.kind, lasts, func() { w.history(h) }, func() {
			if w.plan.history == h {
				w.history(layout.History{})
			}
		})
	case "budget":
		bytes := int64(1000 + random.IntN(30_000))
		w.during(d.kind, lasts, func() { act("budget", func(a *actor) { a.budget(bytes, lasts) }) }, func() {})
	case "wipe":
		w.during(d.kind, 10*time.Second, func() {}, func() {})
		w.wipe()
	case "cancel all":
		lasts = min(lasts, 10*time.Second)
		filter := delay.Filter{Tag: fmt.Sprintf("tag%d", random.IntN(3))}
		key := ""
		if random.IntN(2) == 0 {
			key = fmt.Sprintf("k%d", random.IntN(4))
		}
		switch random.IntN(4) {
		case 0:
			filter.Key = key
		case 1:
			filter = delay.Filter{Key: "k1"}
		}
		w.during(d.kind, lasts, func() {
			w.hot(d, random, key, lasts)
			p := w.startProducer(fmt.Sprint("producer all", d.index), false) // What it cancels is of nobody else.
			act("all", func(a *actor) { a.cancelAll(p, filter, lasts) })
		}, func() {})
	case "once":
		w.during(d.kind, max(lasts, 3*time.Second), func() {
			for i := range 1 + random.IntN(6) {
				n := 1 + random.IntN(5)
				w.actor(fmt.Sprint("once", d.index, "-", i), rand.New(rand.NewPCG(d.seed, uint64(i))), func(a *actor) { a.request(fmt.Sprintf("r%d-%d", d.index, i), n) })
			}
		}, func() {})
	case "recurring":
		lasts = max(lasts, 5*time.Second)
		w.during(d.kind, lasts, func() { w.recurrings(d, random, lasts) }, func() {})
	case "outbox":
		w.during(d.kind, max(lasts, 5*time.Second), func() { w.boxBurst(d) }, func() {})
		if random.IntN(3) == 0 { // Of what somebody cancels meanwhile, a copy may be out.
			w.during("nack", 8*time.Second, func() { w.broker.modes[topic] = "nack" }, func() { delete(w.broker.modes, topic) })
		}
	case "database away":
		w.during(d.kind, min(lasts, 20*time.Second), func() { w.database.leave(true) }, func() { w.database.leave(false) })
	case "database flaky":
		w.flakyDatabase(lasts, random.IntN(2) == 0)
	case "slow database":
		w.during(d.kind, lasts, func() { w.database.isSlow = true }, func() { w.database.isSlow = false })
		if random.IntN(2) == 0 { // More is there when a relay takes rows than when it looked.
			w.boxBurst(d)
		}
	case "database clock":
		by := time.Duration(random.IntN(120)-60) * time.Second
		w.during(d.kind, lasts, func() { w.database.set(by) }, func() { w.database.set(w.plan.box.skew) })
	case "lost shard":
		w.during(d.kind, lasts, func() {
			shard := random.IntN(4)
			if random.IntN(2) == 0 {
				w.loseShard(shard)
				return
			}
			w.boxBurst(d) // What is published, no row is told any more, and then somebody has it cancelled.
			at := between(random, 300*time.Millisecond, 3*time.Second)
			w.after(at, "", func() {
				w.during("database away", 6*time.Second-at, func() { w.database.leave(true) }, func() { w.database.leave(false) })
			})
			w.after(5*time.Second, "", func() { w.loseShard(shard) })
		}, func() {})
	case "auditor":
		w.during(d.kind, max(lasts, 5*time.Second), func() { anyBridge(func(b *bridge) { act("audit", func(a *actor) { a.audit(b) }) }) }, func() {})
	case "evening": // What bridges have done in Redis, no row says, and when they come back, Redis remembers nothing of it.
		w.boxBurst(d)
		w.after(2*time.Second, "", func() { w.flakyDatabase(20*time.Second, true) })
		// It forgets when others cancel and replace messages, who know its clock for longer than it remembers.
		w.after(w.plan.morning()-w.now()-20*time.Second, "", func() { w.hot(d, random, "", 3*time.Second) })
		if random.IntN(3) == 0 { // And loses what was published, of which no row knows.
			w.after(w.plan.morning()-w.now()-time.Minute, "", func() {
				w.during("lost shard", time.Second, func() {
					for shard := range w.plan.shards {
						w.loseShard(shard)
					}
				}, func() {})
			})
		}
		w.after(w.plan.morning()-w.now()-time.Second, "", func() { w.flakyDatabase(10*time.Second, random.IntN(2) == 0) })
	case "night":
		for _, b := range slices.Clone(w.plan.fleet.all) {
			b.drain(20*time.Second, func(error) {})
		}
		w.isNight = true
		w.after(w.plan.morning()-w.now(), "morning", func() {
			w.isNight = false
			for range w.plan.bridges {
				w.startBridge()
			}
		})
	default:
		panic("no trouble: " + d.kind)
	}
}

// flakyDatabase has it lose what it is asked, and answers; perhaps only where bridges have written much.
func (w *world) flakyDatabase(lasts time.Duration, ofMuch bool) {
	w.during("database flaky", lasts, func() { w.database.isFlaky, w.database.ofMuch = true, ofMuch }, func() {
		w.database.isFlaky = w.active["database flaky"] > 0 && !w.healed
	})
}

// stall holds a process up: nothing of it comes in or goes out.
func (w *world) stall(h *host, lasts time.Duration) {
	if !w.healed {
		w.during("stall", lasts, func() { h.stalled = w.now() + lasts }, func() {})
	}
}

// tookOver is told that a process has taken a shard over: where bridges are weak, the first one that does is held up, too.
func (w *world) tookOver(h *host) {
	if f := &w.plan.fleet; h != nil && w.now() < f.weak {
		f.weak = 0
		w.after(0, "", func() { w.stall(h, lease+3*time.Second) })
	}
}

func (w *world) slowBroker(lasts time.Duration) {
	w.during("slow", lasts, func() { w.broker.isSlow = true }, func() { w.broker.isSlow = false })
}

func (w *world) slowRedis(lasts time.Duration) {
	w.during("slow redis", lasts, func() { w.redis.isSlow = true }, func() { w.redis.isSlow = false })
}

// doubt has some claims be confirmed, and others not that were made a moment before or after, while messages of one Key
// are due.
func (w *world) doubt(d *decision, random *rand.Rand, topic string) {
	w.slowRedis(5 * time.Second)
	w.order(d, random, topic)
	for range 10 {
		lasts := between(random, 10*time.Millisecond, 600*time.Millisecond)
		w.after(time.Duration(random.Int64N(int64(5*time.Second))), "", func() {
			if !w.healed {
				w.during("no replicas", lasts, func() { w.redis.replicas = false }, func() { w.redis.replicas = true })
			}
		})
	}
}

func (w *world) rate(rates poller.Rates) {
	w.model.rated = append(w.model.rated, rated{w.now(), rates})
	w.change(func(p *poller.Policy) { p.Rates = rates })
}

func (w *world) change(change func(*poller.Policy)) {
	policy := w.plan.fleet.policy
	change(&policy)
	w.follow(policy)
}

// restore puts a shard back to what it was a while ago, as a failover to a late replica does.
// What was confirmed meanwhile, the replica has.
func (w *world) restore(shard int, ago time.Duration) {
	tag := fmt.Sprintf("{%s:%d}", queueName, shard)
	r := &replica{tag: tag}
	w.during("restore", ago, func() {
		w.follows(r)
		w.redis.lagging = append(w.redis.lagging, r)
	}, func() {
		w.redis.lagging = slices.DeleteFunc(w.redis.lagging, func(other *replica) bool { return other == r })
		if w.healed {
			return
		}
		w.tell("restore " + tag)
		fence := func() string { epoch, _ := w.redis.server.field("delay:"+tag+":meta", "epoch"); return epoch }
		before := fence()
		w.replace(tag, r.was)
		switch fence() {
		case before:
		case "": // It is as before it was made.
			w.model.happened("lost shard")
			fallthrough
		default:
			w.model.happened("fence lost")
		}
		w.model.holders[tag] = r.holder
		w.model.restored(tag, r.then)
	})
}

// replace puts a shard in place of what Redis has of it.
func (w *world) replace(tag string, by *redisServer) {
	if w.model.isLimited() { // By a budget that may go with this.
		w.model.happened("limit")
	}
	w.redis.server.restore(tag, by)
}

// replica is what a late replica has of a shard.
type replica struct {
	tag    string
	then   time.Duration
	was    *redisServer
	holder string
}

// follows has it have what the primary has now.
func (w *world) follows(r *replica) {
	r.then, r.was, r.holder = w.now(), w.redis.server.snapshot(r.tag), w.model.holders[r.tag]
}

// insist makes an operator's call until it succeeds, for some minutes.
func (a *actor) insist(call string, do func(context.Context) error) bool {
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := do(ctx)
		cancel()
		a.answered(call, err)
		if err == nil || a.w.isOver {
			return err == nil
		}
		a.rest(between(a.random, 100*time.Millisecond, 5*time.Second))
	}
	return false
}

func (a *actor) pause(topic string) {
	a.insist("pause "+topic, func(ctx context.Context) error {
		_, err := inspect.NewAdmin(a.w.plan.operator.queue).Pause(ctx, topic, "ann")
		return err
	})
	if a.w.healed {
		a.resume(topic)
	}
}

func (a *actor) resume(topic string) {
	a.insist("resume "+topic, func(ctx context.Context) error {
		_, err := inspect.NewAdmin(a.w.plan.operator.queue).Resume(ctx, topic)
		return err
	})
}

func (a *actor) reshard(shards int) {
	a.insist(fmt.Sprint("reshard to ", shards), func(ctx context.Context) error {
		_, err := a.w.plan.operator.queue.Layouts().SetShards(ctx, shards)
		if a.w.healed {
			return nil
		}
		return err
	})
	a.in("resharded", func() { a.w.model.layouts = append(a.w.model.layouts, a.w.now()) })
}

// job has many messages cancelled, moved, redriven or purged, perhaps those of a Key, and looks at what it has left.
func (a *actor) job(key string) {
	spec := job.Spec{Verb: []job.Verb{job.Cancel, job.Cancel, job.Reschedule, job.Redrive, job.Purge}[a.random.IntN(5)]}
	switch a.random.IntN(4) {
	case 0:
		spec.Filter.Topic = simTopics[a.random.IntN(len(simTopics))]
	case 1, 2:
		spec.Filter.Key = key
	default:
		spec.Filter.Tag = fmt.Sprintf("tag%d", a.random.IntN(3))
	}
	if spec.Verb == job.Reschedule {
		spec.By = time.Duration(1+a.random.IntN(20)) * time.Second
	}
	if spec.Verb == job.Redrive || spec.Verb == job.Purge {
		spec.Filter.State = inspect.StateDead
	}
	if a.chance(2) { // It takes a while, and messages move meanwhile.
		spec.Rate = 1 + a.random.IntN(10)
	}
	matches := func(l *life) bool {
		return (spec.Filter.Topic == "" || spec.Filter.Topic == l.topic) && (spec.Filter.Key == "" || spec.Filter.Key == l.key) &&
			(spec.Filter.Tag == "" || slices.Contains(l.tags, spec.Filter.Tag))
	}
	var before []*life
	began, asked := time.Duration(0), &jobAsk{verb: spec.Verb, matches: matches, began: 1 << 62}
	a.in("chooses", func() {
		began = a.w.now()
		a.w.model.jobs = append(a.w.model.jobs, asked)
		before = a.w.model.waiting(matches)
	})
	jobs := job.New(a.w.plan.operator.queue)
	id := ""
	starts := 0
	if !a.insist(fmt.Sprintf("job %s %+v", spec.Verb, spec.Filter), func(ctx context.Context) (err error) {
		starts++
		id, err = jobs.Start(ctx, spec)
		return err
	}) {
		return
	}
	a.in("has started", func() { asked.began = a.w.now() })
	for looks := 0; looks < 200; looks++ {
		if a.w.isOver {
			return
		}
		rest := between(a.random, 100*time.Millisecond, 5*time.Second)
		if a.w.isNight { // Nobody runs it.
			rest, looks = time.Minute, 0
		}
		a.rest(rest)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		found, err := jobs.Get(ctx, id)
		cancel()
		if errors.Is(err, job.ErrNone) {
			return // A restore has taken it.
		}
		if err != nil || !found.State.Ended() {
			continue
		}
		a.in("looks", func() {
			asked.isOver = starts == 1 // Else others may be under way.
			a.w.jobEnded(a.name, found, before, began)
		})
		return
	}
	a.w.fail("%s has not ended", a.name)
}

// letters has an operator redrive, or purge, dead letters by their names.
func (a *actor) letters() {
	verb := []job.Verb{job.Redrive, job.Purge}[a.random.IntN(2)]
	for range 10 {
		var members []string
		a.in("chooses letters", func() {
			for _, at := range sortedKeys(a.w.model.places) {
				if p := a.w.model.places[at]; p.now.state == dead && p.now.life != nil && len(members) < 20 {
					members = append(members, p.of.member)
				}
			}
			// What is late takes effect late.
			a.w.model.jobs = append(a.w.model.jobs, &jobAsk{verb: verb, began: 1 << 62, matches: func(l *life) bool {
				return slices.ContainsFunc(members, func(member string) bool { return member == l.member })
			}})
		})
		if len(members) > 0 {
			ctx, cancel := a.call()
			admin := inspect.NewAdmin(a.w.plan.operator.queue)
			do := admin.Redrive
			if verb == job.Purge {
				do = admin.Purge
			}
			_, err := do(ctx, members)
			a.answered(fmt.Sprintf("%s of %d letters", verb, len(members)), err)
			cancel()
		}
		if a.rest(between(a.random, 100*time.Millisecond, 5*time.Second)); a.w.isOver {
			return
		}
	}
}

// jobEnded checks that nothing is left that a job should have ended, but what it tells of:
// of what has stayed where it was all the time, which was never in flight.
func (w *world) jobEnded(name string, ended job.Job, before []*life, began time.Duration) {
	t := ended.Tally
	w.tell(fmt.Sprintf("%s has ended %s: %+v", name, ended.State, t))
	if ended.State != job.Done || ended.Spec.Verb != job.Cancel {
		return
	}
	left, example := int64(0), (*life)(nil)
	for _, l := range before {
		if l.removed == "" && l.changed < began && !w.model.was(l.began, "clock") { // The job is about what was there, by the clock.
			left, example = left+1, l
		}
	}
	excused := t.Failed + t.Unknown
	if ended.Remaining != nil {
		excused = max(excused, *ended.Remaining)
	}
	if left > excused {
		w.fail("job: %s has ended with %+v, and %d messages are left that it should have cancelled, as %s", name, t, left, example)
	}
}
