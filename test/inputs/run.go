package inputs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	natsgo "github.com/nats-io/nats.go"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/test/flow"
)

// Options say where bad input is tried.
type Options struct {
	// World has the bridge under test; [World] says how it is made.
	World *flow.World
	// Binary is that bridge's, for its commands.
	Binary string
	// Seed makes what is random repeatable.
	Seed uint64
	// Finished, if not nil, is called with each report at once: all of them take a minute.
	Finished func(Report)
}

// World are the options of the world that [Run] takes. The topics are wrong for NATS
// only, and the rows are PostgreSQL's.
func World(binary string, shards int) flow.Options {
	return flow.Options{
		Binary: binary, Broker: "nats", Shards: shards, Database: "postgres", Outbox: "horizon: 2h",
		Redis: []string{"--appendonly", "yes"},
	}
}

// Run tries all bad inputs, one entrance after the other, and reports on each. It goes on
// where one has faults or cannot be tried, and returns an error that names all of these.
// An entrance that cannot be tried has no report.
func Run(ctx context.Context, o Options) ([]Report, error) {
	r := &round{finished: o.Finished}
	if err := r.bridge(ctx, o); err != nil {
		return nil, err
	}
	if err := r.development(ctx, o); err != nil {
		r.problems = append(r.problems, fmt.Errorf("clock: %w", err))
	}
	return r.reports, errors.Join(r.problems...)
}

// round is one turn through the entrances.
type round struct {
	finished func(Report)
	reports  []Report
	problems []error
}

// bridge tries all entrances but the clock.
func (r *round) bridge(ctx context.Context, o Options) error {
	w := o.World
	nc, err := natsgo.Connect(w.Broker.Server().URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	kept, err := keep(ctx, w.Client, w.Topic, func(ctx context.Context) (string, error) { return holds(ctx, w) })
	if err != nil {
		return err
	}
	for _, e := range entrances(o, nc) {
		r.enter(ctx, process{w.Bridge.Admin(), kept}, e)
	}
	return nil
}

// development tries the clock, which only `bridge dev` has.
func (r *round) development(ctx context.Context, o Options) error {
	d, err := develop(ctx, o.Binary, o.World.Dir)
	if d != nil {
		defer d.close()
	}
	if err != nil {
		return err
	}
	client, err := delay.NewClient(d.rdb, "orders")
	if err != nil {
		return err
	}
	kept, err := keep(ctx, client, "order.kept", d.holds)
	if err != nil {
		return err
	}
	r.enter(ctx, process{d.admin, kept}, clockEntrance{seed(o.Seed), d.admin})
	return nil
}

// enter tries an entrance and notes what became of it.
func (r *round) enter(ctx context.Context, p process, e entrance) {
	report, err := p.try(ctx, e)
	if err != nil {
		r.problems = append(r.problems, fmt.Errorf("%s: %w", e.name(), err))
		return
	}
	r.reports = append(r.reports, report)
	if r.finished != nil {
		r.finished(report)
	}
	if count := len(report.Faults); count > 0 {
		r.problems = append(r.problems, fmt.Errorf("%s: %d faults", e.name(), count))
	}
}

// entrances are all but the clock, which another process has.
func entrances(o Options, nc *natsgo.Conn) []entrance {
	w := o.World
	a := aim{w.Queue(), w.Topic, seed(o.Seed)}
	line := commandLine{o.Binary, w.Bridge.Config, w.Queue()}
	return []entrance{
		sdkEntrance{a, w.RDB, w.Prefix()},
		outboxEntrance{a, w.Database.DB},
		rowsEntrance{a, w.Database.DB},
		httpEntrance{a, w.Bridge.Admin()},
		configEntrance{a.seed},
		environmentEntrance{},
		flagsEntrance{a, line},
		batchEntrance{a, line, w.Dir},
		compensationEntrance{a, w.Broker, nc},
	}
}

// process is what the inputs are for.
type process struct {
	admin string
	kept  *keeping
}

// try tries all inputs of an entrance, then looks whether the process lives and all that
// waited is still there, unchanged.
func (p process) try(ctx context.Context, e entrance) (Report, error) {
	trials, err := e.trials(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Entrance: e.name()}
	for _, one := range trials {
		r.add(one, one.put(ctx))
	}
	if a := send(ctx, http.MethodGet, "http://"+p.admin+"/livez", "", nil); a.broken || a.refused {
		r.notAlive(a.text)
	}
	changes, err := p.kept.changes(ctx)
	if err != nil {
		return Report{}, err
	}
	r.changed(changes)
	return r, nil
}

// holds says what the queue holds, and what operators can change.
func holds(ctx context.Context, w *flow.World) (string, error) {
	totals, err := w.Totals(ctx)
	if err != nil {
		return "", err
	}
	paused, err := inspect.NewAdmin(w.Store()).Paused(ctx)
	if err != nil {
		return "", err
	}
	jobs, _, err := job.New(w.Store()).List(ctx, "")
	if err != nil {
		return "", err
	}
	level := send(ctx, http.MethodGet, "http://"+w.Bridge.Admin()+"/api/v1/log-level", "", nil)
	return fmt.Sprintf("%d waiting, %d in flight, %d dead, %d scheduled, paused %v, %d jobs, log level %s",
		totals.Waiting, totals.InFlight, totals.Dead, totals.Counters["scheduled"], paused, len(jobs), level.text), nil
}
