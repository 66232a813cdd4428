// Command antithesis is the workload for a hypervisor that injects the faults (https://antithesis.com): it schedules, cancels and
// reschedules beside bridges, Redis and NATS that run already, and tells the hypervisor whether the promises hold.
//
//	antithesis -redis redis://redis:6379/0 -nats nats://nats:4222            some minutes of load, while there are faults
//	antithesis -redis redis://redis:6379/0 -nats nats://nats:4222 -healed    once there are none: is all out within a minute?
//
// What must always hold is an Always, what has to be seen now and then a Sometimes. Built as usual, these do nothing; with
// -tags enable_antithesis_sdk they reach the hypervisor, or without one the file that ANTITHESIS_SDK_LOCAL_OUTPUT names.
// The bridge itself has none of it. docs/reliability.md says how a run is set up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/antithesishq/antithesis-sdk-go/assert"
	"github.com/antithesishq/antithesis-sdk-go/lifecycle"
	"github.com/antithesishq/antithesis-sdk-go/random"

	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	// lead is the least time from a schedule to the due time.
	lead = time.Second
	// healing is how long after the last fault all that is due may take, see docs/faults.md.
	healing = time.Minute
	// patience is how long a load waits, beside faults, for its messages. If that does not suffice, it claims nothing.
	patience = 10 * time.Minute
)

// options are the flags.
type options struct {
	redis, nats, prefix, queue string
	load, spread               time.Duration
	healed                     bool
}

func main() {
	var o options
	flag.StringVar(&o.redis, "redis", "redis://127.0.0.1:6379/0", "URL of Redis")
	flag.StringVar(&o.nats, "nats", "nats://127.0.0.1:4222", "URL of NATS")
	flag.StringVar(&o.prefix, "prefix", "delay", "prefix of the keys")
	flag.StringVar(&o.queue, "queue", "orders", "the queue")
	flag.DurationVar(&o.load, "load", time.Minute, "how long to schedule")
	flag.DurationVar(&o.spread, "spread", 20*time.Second, "how much later than a second after its schedule a message may be due")
	flag.BoolVar(&o.healed, "healed", false, "there are no faults any more: see that all is out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "antithesis:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context, o options) error {
	w, err := attach(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = w.RDB.Close() }()
	lifecycle.SetupComplete(map[string]any{"queue": o.queue})
	if o.healed {
		return healed(ctx, w, o)
	}
	return load(ctx, w, o)
}

// attach tries until Redis and NATS answer.
func attach(ctx context.Context, o options) (*trial.World, error) {
	for {
		w, err := trial.Attach(ctx, o.redis, o.nats, o.prefix, o.queue)
		if err == nil || trial.Sleep(ctx, time.Second) != nil {
			return w, err
		}
	}
}

// load schedules, and compares what was promised with what came.
func load(ctx context.Context, w *trial.World, o options) error {
	stop := w.Consume(ctx)
	var calls trial.Calls
	churn := trial.Churn{Steady: trial.Steady{
		Client: w.Client, Topic: w.Topic, Rate: 100, Lead: lead, Spread: o.spread, BodySize: 256, Keys: 100,
		Seed: random.GetRandom(), IDs: w.Topic + "-", Calls: &calls,
	}}
	bounded, end := context.WithTimeout(ctx, o.load)
	defer end()
	if err := churn.Run(bounded, w.Ledger); err != nil {
		return err
	}
	patient, endWait := context.WithTimeout(ctx, patience)
	defer endWait()
	_, undrained := w.Drained(patient)
	if undrained == nil {
		w.Ledger.Await(patience, time.Second)
	}
	if err := stop(); err != nil {
		return err
	}
	tell(w.Ledger.Report(), undrained == nil)
	return nil
}

// tell says which promises hold. A message that is not out yet is not lost.
func tell(r trial.Report, isDrained bool) {
	details := map[string]any{"report": r.String(), "problems": r.Problems}
	assert.Always(r.Early == 0, "no message is published before it is due (I2)", details)
	assert.Always(r.CancelledArrived == 0, "no message is published whose cancel said done (I11)", details)
	assert.Always(r.WrongDue == 0, "no message is published for a due time that nobody promised (I11)", details)
	assert.Always(r.Unknown == 0 && r.Untruthful == 0, "no message is published that was not accepted (I11)", details)
	assert.Always(r.DuplicatesUnmarked == 0, "every copy has a higher attempt (I3)", details)
	assert.AlwaysOrUnreachable(!isDrained || r.Lost == 0, "no accepted message is lost (I1)", details)
	assert.Sometimes(isDrained, "all is out beside faults", details)
	assert.Sometimes(r.Duplicates > 0, "a message is published twice after a fault", details)
	assert.Sometimes(r.Duplicates == 0 && r.Arrived > 0, "no message is published twice", details)
	fmt.Println(r)
}

// healed sees that all is out within a minute, and that the counters balance. The load has ended, so all is due by then.
func healed(ctx context.Context, w *trial.World, o options) error {
	bounded, end := context.WithTimeout(ctx, lead+o.spread+healing)
	defer end()
	_, undrained := w.Drained(bounded)
	totals, err := w.Totals(ctx)
	if err != nil {
		undrained = err
	}
	details := map[string]any{"totals": fmt.Sprintf("%+v", totals), "error": fmt.Sprint(undrained)}
	assert.Always(undrained == nil, "all that is due is out a minute after the last fault (I7)", details)
	assert.Always(err != nil || totals.Unbalanced() == 0, "the counters balance (I6)", details)
	assert.Always(totals.Dead == 0, "nothing is in the dead letters", details)
	fmt.Printf("%+v\n", totals)
	return undrained
}
