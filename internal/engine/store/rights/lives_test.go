package rights_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/recurring"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/store/turns"
	"github.com/delaybridge/delaybridge/internal/engine/store/verify"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

var lives = map[rights.Role][]step{
	rights.Producer: slices.Concat(producing, []step{{"finish a change of others", finishChange}}),
	rights.Viewer:   slices.Concat([]step{{"connect", ping}, finding}, viewing),
	rights.Operator: slices.Concat([]step{{"connect", ping}, finding}, viewing, producing, auditing, operating),
	rights.Bridge:   slices.Concat(polling, producing, viewing, auditing, serving, []step{{"hear hints", hear}}), // That takes long.
}

func ping(ctx context.Context, l *life) error { return l.rdb.Ping(ctx).Err() }

// producing is what the SDK does.
var producing = []step{
	{"create the queue", func(ctx context.Context, l *life) error {
		return l.q.Producer().CreateLayout(ctx, store.Layout{Shards: 1, MaxMessage: message.DefaultMaxSize})
	}},
	{"schedule", func(ctx context.Context, l *life) error {
		return errors.Join(schedule(ctx, l.q, later, "a", "b"), schedule(ctx, l.q, later, "a", "dead"))
	}},
	{"replace", func(ctx context.Context, l *life) error {
		return errorOf(l.q.Producer().Schedule(ctx, []store.Request{{Message: note("a"), When: later}}, true, none)...)
	}},
	{"reschedule", func(ctx context.Context, l *life) error {
		return errorOf(l.q.Producer().Reschedule(ctx, "a", "", later, none))
	}},
	{"cancel, and get", func(ctx context.Context, l *life) error {
		_, _, err := inspect.Get(ctx, l.q, "b", "")
		_, _, errEnded := inspect.Get(ctx, l.q, "a", "")
		return errors.Join(err, errEnded, errorOf(l.q.Producer().Cancel(ctx, "a", "", none)))
	}},
	{"cancel all of a tag, and of a key", func(ctx context.Context, l *life) error {
		keyed := []store.Request{{Message: &message.Message{ID: "e", Key: "key", Topic: "topic"}, When: later}}
		err := errors.Join(schedule(ctx, l.q, later, "a"), errorOf(l.q.Producer().Schedule(ctx, keyed, false, none)...))
		_, _, errKey := job.CancelAll(ctx, l.q, "", "key", 1, none)
		_, _, errTag := job.CancelAll(ctx, l.q, "blue", "", 1, none)
		return errors.Join(err, errKey, errTag)
	}},
	{"get in flight", func(ctx context.Context, l *life) error {
		_, _, err := inspect.Get(ctx, l.q, "flying", "")
		return err
	}},
	{"push a row", func(ctx context.Context, l *life) error {
		return errorOf(l.q.Rows().PutWithin(ctx, time.Now().Add(time.Minute), []store.Row{row(1)})...)
	}},
	{"set a recurring schedule", func(ctx context.Context, l *life) error {
		all := recurring.New(l.q, none)
		_, _, err := all.Set(ctx, "daily", recurring.Spec{Cron: "@daily", Topic: "topic"})
		if err != nil {
			return err
		}
		kept, _, err := all.List(ctx)
		if err != nil {
			return err
		}
		_, errMark := all.Mark(ctx)
		_, errStep := all.Step(ctx, kept[0])
		_, errDelete := all.Delete(ctx, "daily")
		return errors.Join(errMark, errStep, errDelete)
	}},
	{"take turns", func(ctx context.Context, l *life) error {
		all := turns.New(l.q, none)
		was, err := all.Get(ctx, "topic", "key")
		if err != nil {
			return err
		}
		_, err = all.Put(ctx, "topic", "key", was, nil, time.Minute)
		return err
	}},
	{"schedule durably", func(ctx context.Context, l *life) error {
		return errorOf(l.q.Producer().Schedule(ctx, []store.Request{{Message: note("c"), When: later}}, false, replica)...)
	}},
}

func row(n int) store.Row {
	return store.Row{Token: fmt.Sprintf("~%015d", n), Message: note(fmt.Sprint("row ", n)), DueAt: time.Now().Add(time.Hour)}
}

// finishChange meets a change of the shards that somebody has begun and given up.
func finishChange(ctx context.Context, l *life) error {
	before, err := l.near.LoadLayout(ctx)
	if err != nil {
		return err
	}
	if err := l.root.HSet(ctx, l.near.Keys().Shard(0).Meta, "epoch", layout.NextEpoch(before.Epoch), "layout", "2|1").Err(); err != nil {
		return err
	}
	if err := schedule(ctx, l.q, later, "d"); err != nil {
		return err
	}
	after, err := l.near.LoadLayout(ctx)
	if err == nil && after.Shards != 2 {
		err = errors.New("the change was not finished")
	}
	return err
}

// viewing changes nothing.
var viewing = []step{
	{"declared queues", func(ctx context.Context, l *life) error {
		_, err := declared.New(l.rdb, l.prefix, time.Second).Look(ctx)
		return err
	}},
	{"recurring schedules", func(ctx context.Context, l *life) error {
		_, _, err := recurring.New(l.q, none).List(ctx)
		return err
	}},
	{"get", func(ctx context.Context, l *life) error {
		for _, id := range []string{"waits", "flying", "dead", "none"} {
			if _, _, err := inspect.Get(ctx, l.q, id, ""); err != nil {
				return err
			}
		}
		return nil
	}},
	{"list", func(ctx context.Context, l *life) error {
		for _, filter := range []inspect.Filter{
			{State: inspect.StateScheduled}, {State: inspect.StateParked}, {State: inspect.StateInFlight}, {State: inspect.StateDead}, {Tag: "red"},
		} {
			for after := ""; ; {
				page, err := inspect.NewAdmin(l.q).List(ctx, inspect.ListRequest{Filter: filter, Limit: 1, After: after})
				if err != nil {
					return err
				}
				if after = page.Next; after == "" {
					break
				}
			}
		}
		return nil
	}},
	{"stats", func(ctx context.Context, l *life) error {
		stats, err := inspect.NewAdmin(l.q).StatsOfAll(ctx)
		if err != nil {
			return err
		}
		_, err = inspect.NewAdmin(l.q).SampleSizes(ctx, &stats)
		_, errPaused := inspect.NewAdmin(l.q).Paused(ctx)
		return errors.Join(err, errPaused)
	}},
	{"forecast", func(ctx context.Context, l *life) error {
		_, err := inspect.NewAdmin(l.q).Forecast(ctx, time.Time{}, time.Now().Add(time.Hour), time.Hour)
		_, errDemand := inspect.NewAdmin(l.q).Demand(ctx, time.Hour)
		return errors.Join(err, errDemand)
	}},
	{"dead letters", func(ctx context.Context, l *life) error {
		return inspect.NewAdmin(l.q).DeadLetters(ctx, func(message.DeadLetter) bool { return true })
	}},
	{"jobs", func(ctx context.Context, l *life) error {
		id, err := job.New(l.near).Start(ctx, job.Spec{Verb: job.Purge, Filter: inspect.Filter{Reason: "none has this"}})
		if err != nil {
			return err
		}
		_, err = job.New(l.q).Get(ctx, id)
		_, _, errList := job.New(l.q).List(ctx, "")
		return errors.Join(err, errList)
	}},
}

// finding is by an id alone.
var finding = step{"find", func(ctx context.Context, l *life) error {
	_, err := inspect.Find(ctx, l.q, "flying", 10)
	return err
}}

var pausing = step{"pause", func(ctx context.Context, l *life) error {
	_, err := inspect.NewAdmin(l.q).Pause(ctx, "topic", "ann")
	_, errResume := inspect.NewAdmin(l.q).Resume(ctx, "topic")
	return errors.Join(err, errResume)
}}

// writing is into the audit.
var writing = step{"write the audit", func(ctx context.Context, l *life) error {
	return inspect.NewAdmin(l.q).Audit(ctx, &inspect.Change{Who: "ann"})
}}

// operating is what the commands do beside.
var operating = []step{
	writing,
	{"make", func(ctx context.Context, l *life) error {
		_, err := l.q.Layouts().Ensure(ctx, store.Layout{Shards: 1, Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize})
		return err
	}},
	pausing,
	{"jobs that change", func(ctx context.Context, l *life) error {
		id, err := job.New(l.q).Start(ctx, job.Spec{Verb: job.Purge, Filter: inspect.Filter{Reason: "none has this"}})
		return errors.Join(err, job.New(l.q).Stop(ctx, id))
	}},
	{"are replicas in time", func(ctx context.Context, l *life) error {
		_, err := store.New(l.rdb, l.prefix, main).WithDurability(replica).Unconfirmed(ctx)
		return err
	}},
	{"verify", func(ctx context.Context, l *life) error {
		if err := l.root.HDel(ctx, l.near.Keys().Shard(0).Msg, "waits").Err(); err != nil {
			return err
		}
		found := 0
		err := verify.Run(ctx, l.q, verify.Options{Mend: true}, func(verify.Breach) error {
			found++
			return nil
		})
		if err == nil && found == 0 {
			err = errors.New("nothing was found")
		}
		return err
	}},
	{"redrive, purge", func(ctx context.Context, l *life) error {
		_, err := inspect.NewAdmin(l.q).Redrive(ctx, []string{"dead"})
		_, errPurge := inspect.NewAdmin(l.q).Purge(ctx, []string{"waits"})
		return errors.Join(err, errPurge)
	}},
	{"change the shards", func(ctx context.Context, l *life) error {
		_, err := l.q.Layouts().SetShards(ctx, 2)
		return err
	}},
}

// auditing is what an outbox does with its rows, by the bridge or by a command.
var auditing = []step{
	{"rows", func(ctx context.Context, l *life) error {
		q := l.q.Rows()
		if err := errorOf(q.Put(ctx, []store.Row{row(2), row(3)})...); err != nil {
			return err
		}
		_, err := q.Born(ctx)
		_, _, _, errPage := q.RowsPage(ctx, 0, "0", 100)
		_, errRemove := q.Remove(ctx, []store.RowFate{{Token: row(3).Token, ID: "row 3", What: store.FateCancelled}})
		return errors.Join(err, errPage, errRemove, errorOf(q.Peek(ctx, []store.Row{row(2)})...))
	}},
	{"ledger", func(ctx context.Context, l *life) error {
		if err := errorOf(l.near.Producer().Cancel(ctx, "row 2", "", none)); err != nil {
			return err
		}
		list, _, err := l.q.Rows().FatePage(ctx, 0, 0, 100)
		return errors.Join(err, l.q.Rows().ForgetFates(ctx, 0, list))
	}},
}

var errNothing = errors.New("nothing was claimed")

// polling is what pollers do.
var polling = []step{
	{"heartbeat", func(ctx context.Context, l *life) error {
		_, _, err := l.q.Members().Heartbeat(ctx, "bridge", time.Hour)
		return err
	}},
	{"rate", func(ctx context.Context, l *life) error {
		_, err := l.q.Members().TakeRates(ctx, []message.RateRequest{{Rate: 10, Messages: 1}})
		return err
	}},
	{"reclaim", func(ctx context.Context, l *life) error {
		claim, err := l.claim(ctx, l.q, "bridge", time.Minute)
		for err == nil && claim.State == message.ClaimHeld && wait.Sleep(ctx, claim.HeldFor) {
			claim, err = l.claim(ctx, l.q, "bridge", time.Minute)
		}
		if err != nil {
			return err
		}
		_, _, err = l.q.Shard(0).Reclaim(ctx, message.Reclaim{Instance: "bridge", Foreign: true})
		return err
	}},
	{"claim, settle", func(ctx context.Context, l *life) error {
		claim, err := l.claim(ctx, l.q, "bridge", time.Minute)
		if err != nil || len(claim.Messages) != 1 {
			return errors.Join(err, errNothing)
		}
		verdict := message.Verdict{Verb: message.VerbPark, Slot: 8, Attempts: message.Attempts{Begun: 1, MaybeOut: 1}}
		_, err = l.q.Shard(0).Settle(ctx, message.Settlement{
			Claim: claim, Verdicts: []message.Verdict{verdict}, Parks: []message.ParkedRoute{{Slot: 8, Route: "r", Since: time.Now()}},
		})
		return err
	}},
	{"claim what is parked", func(ctx context.Context, l *life) error {
		claim, err := l.claim(ctx, l.q, "bridge", time.Minute, func(r *message.ClaimRequest) { r.Slot = 8 })
		if err != nil || len(claim.Messages) != 1 {
			return errors.Join(err, errNothing)
		}
		_, errParked := l.q.Shard(0).Parked(ctx)
		settlement := message.Settlement{Claim: claim, Verdicts: []message.Verdict{{Verb: message.VerbAck, Published: true}}}
		_, err = l.q.Shard(0).Settle(ctx, settlement)
		_, errLate := l.q.Shard(0).Settle(ctx, settlement)
		return errors.Join(err, errParked, errLate)
	}},
	{"meet another one", func(ctx context.Context, l *life) error {
		_, err := l.claim(ctx, l.q, "another", time.Minute)
		return err
	}},
	{"confirm", func(ctx context.Context, l *life) error {
		q := store.New(l.rdb, l.prefix, main).WithDurability(replica)
		if _, err := q.LoadLayout(ctx); err != nil {
			return err
		}
		_ = q.Shard(0).Confirm(ctx, message.ClaimToken{Instance: "bridge", Number: l.number}) // There is no replica.
		return nil
	}},
	{"hand over, leave", func(ctx context.Context, l *life) error {
		return errors.Join(l.q.Shard(0).HandOver(ctx, "bridge"), l.q.Members().Leave(ctx, "bridge"))
	}},
	{"repair", func(ctx context.Context, l *life) error {
		if err := l.root.Del(ctx, l.near.Keys().Shard(0).Meta).Err(); err != nil {
			return err
		}
		_, err := l.q.Layouts().Repair(ctx)
		return err
	}},
	{"keep the layout", keepLayout},
}

// keepLayout drops a shard that nobody has any more.
func keepLayout(ctx context.Context, l *life) error {
	near, q := store.New(l.root, l.prefix, other), store.New(l.rdb, l.prefix, other)
	_, err := near.Layouts().Ensure(ctx, store.Layout{Shards: 2, Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize})
	if err != nil {
		return err
	}
	if _, err := near.Layouts().SetShards(ctx, 1); err != nil {
		return err
	}
	keeper := layout.NewKeeper(q.Layouts(), 0)
	for dropped := false; !dropped; {
		if err := keeper.Step(ctx); err != nil {
			return err
		}
		n, err := l.root.Exists(ctx, near.Keys().Shard(1).Meta).Result()
		if dropped = n == 0; err != nil || !wait.Sleep(ctx, time.Millisecond) {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

// hear listens for as long as it takes until the connection asks for a sign of life, and
// then lets the shard go.
func hear(ctx context.Context, l *life) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	queue, ignore := keys.Queue{Prefix: l.prefix, Name: main}, hints.Listener{Wake: func(int) {}, Changed: func() {}}
	subscriber := hints.New(l.rdb)
	subscriber.Set(queue, []int{0}, ignore)
	running.Go(func() { subscriber.Run(ctx) })
	if err := l.awaitCall(ctx, "ping"); err != nil {
		return err
	}
	subscriber.Set(queue, []int{}, ignore)
	return l.awaitCall(ctx, "sunsubscribe")
}

// awaitCall returns when the server was asked for that command, or has denied any.
func (l *life) awaitCall(ctx context.Context, command string) error {
	for {
		info, err := l.root.Info(ctx, "commandstats").Result()
		if err != nil || strings.Contains(info, "cmdstat_"+command+":") {
			return err
		}
		if denied, err := l.denied(ctx, ""); err != nil || len(denied) > 0 {
			return err
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("nobody called %s: %w", command, ctx.Err())
		}
	}
}

// serving is what the API and the bridge's own chores do.
var serving = []step{
	{"begin and end a request under an idempotency key", func(ctx context.Context, l *life) error {
		o, err := l.q.Producer().Once(ctx, "name", "fingerprint", time.Minute)
		if err != nil {
			return err
		}
		errLet := o.LetGo(ctx)
		again, err := l.q.Producer().Once(ctx, "name", "fingerprint", time.Minute)
		return errors.Join(errLet, err, again.Answered(ctx, nil))
	}},
	writing,
	{"read the audit", func(ctx context.Context, l *life) error {
		_, err := inspect.NewAdmin(l.q).AuditLog(ctx, "", 1)
		return err
	}},
	{"instances", func(ctx context.Context, l *life) error {
		_, _, err := inspect.NewAdmin(l.q).Instances(ctx)
		_, errCounters := inspect.NewAdmin(l.q).Counters(ctx, []string{"scheduled"})
		return errors.Join(err, errCounters)
	}},
	{"declare a queue", func(ctx context.Context, l *life) error {
		all := declared.New(l.rdb, l.prefix, time.Second)
		was, now, err := all.Read(ctx)
		if err != nil {
			return err
		}
		errReplace := all.Replace(ctx, was, was.With("q", []byte("{}"), "ann", now))
		_, errHas := all.Has(ctx, was)
		return errors.Join(errReplace, errHas)
	}},
	{"budget, dead limits", func(ctx context.Context, l *life) error {
		_, err := inspect.NewAdmin(l.q).Limit(ctx, 1<<30)
		_, _, errTrim := inspect.NewAdmin(l.q).TrimDead(ctx, inspect.DeadLimits{Max: 100})
		return errors.Join(err, errTrim)
	}},
	{"run jobs", func(ctx context.Context, l *life) error {
		id, err := job.New(l.q).Start(ctx, job.Spec{Verb: job.Reschedule, Filter: inspect.Filter{Tag: "red"}, By: time.Second})
		if err != nil {
			return err
		}
		run, err := job.New(l.q).Take(ctx, id, "bridge")
		for err == nil && !run.Job().State.Ended() {
			_, err = run.Step(ctx, 100)
		}
		return err
	}},
	pausing,
}
