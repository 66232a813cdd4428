package trial_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// TestInlet: producers publish to an inlet of two bridges while the broker, Redis and the bridges are killed, one after
// the other and together. What the broker has confirmed is done and answered, once, and not acknowledged
// before. It checks I1 to I3, I6 and I11.
func TestInlet(t *testing.T) {
	needsFull(t)
	t.Parallel()
	for _, broker := range []string{"nats", "rabbitmq", "kafka"} {
		t.Run(broker, func(t *testing.T) {
			w := newWorld(t, trial.Options{
				Broker: broker, Copies: true, Redis: persistent("--appendfsync", "always"), Config: trial.InletConfig(broker),
			})
			startBridges(t, w, 1)
			require.NoError(t, w.MakeInlet(t.Context()))
			if broker == "kafka" { // Its client does not tell that the broker is away.
				awayAndBack(t, w)
			}
			for round := range 8 {
				inletRound(t, w, round)
				require.False(t, t.Failed())
			}
		})
	}
}

// awayAndBack looks how the API tells that the broker is away.
func awayAndBack(t *testing.T, w *trial.World) {
	t.Helper()
	says := func(state, cause string) {
		t.Helper()
		require.Eventually(t, func() bool {
			seen, err := w.Bridge.Inlets(t.Context())
			return err == nil && len(seen) == 1 && seen[0].State == state && seen[0].Cause == cause
		}, 2*time.Minute, 100*time.Millisecond, "%s %s", state, cause)
	}
	says("consuming", "")
	require.NoError(t, w.Broker.Server().Kill())
	says("disconnected", "broker")
	require.NoError(t, w.Broker.Server().Start(t.Context()))
	says("consuming", "")
}

// inletRound kills everything once, and then judges.
func inletRound(t *testing.T, w *trial.World, round int) {
	t.Helper()
	before, err := w.Totals(t.Context())
	require.NoError(t, err)
	ids := fmt.Sprintf("r%d-", round)
	w.Ledger = trial.NewLedger()
	in := trial.NewInlet(w, ids)
	stopListening := in.Listen(t.Context())
	uids := map[string]map[string]bool{} // by id
	consuming, stop := context.WithCancel(t.Context())
	consumed := make(chan error, 1)
	go func() {
		consumed <- w.Broker.Consume(consuming, w.Topic, func(r trial.Record) {
			if !strings.HasPrefix(r.ID, ids) {
				return // It is of an earlier round.
			}
			if uids[r.ID] == nil {
				uids[r.ID] = map[string]bool{}
			}
			uids[r.ID][r.Headers[delay.HeaderUID]] = true
			w.Ledger.Got(r)
		})
	}()

	random := rand.New(rand.NewPCG(*seed, uint64(round))) //nolint:gosec // a seed makes the run repeatable
	var killed string
	asks := random.Uint64()
	require.NoError(t, trial.While(t.Context(),
		func(ctx context.Context) error { return in.Ask(ctx, asks) },
		func(ctx context.Context) error { killed = killAll(ctx, t, w, in, random); return nil }))
	healed := time.Now()
	if !assert.Eventually(t, func() bool {
		left, err := in.Left(t.Context())
		return err == nil && left == 0 && len(in.Unanswered()) == 0
	}, 3*time.Minute, 100*time.Millisecond, "asked, and not done") {
		left, err := in.Left(t.Context())
		t.Fatalf("%s: %d left (%v), unanswered: %s", killed, left, err, in.Unanswered())
	}
	done := time.Since(healed)
	assert.Less(t, done, time.Minute, "since the last of it was back")
	require.NoError(t, in.CancelRest(t.Context()))
	drained, end := context.WithTimeout(t.Context(), 3*time.Minute)
	defer end()
	if _, err = w.Drained(drained); err != nil {
		t.Log("another publisher's message to the topic:", answers(t, w))
	}
	require.NoError(t, err)

	effects, problems := in.Judge(w.Ledger)
	w.Ledger.Await(time.Minute, time.Second)
	stop()
	require.NoError(t, <-consumed)
	require.NoError(t, stopListening())
	report := w.Ledger.Report()
	report.OutOfOrder = 0 // Order holds where nothing comes back.
	t.Logf("round %d, seed %d: %s; all done %s after the last of it: %+v\n%s", round, *seed, killed, done.Round(100*time.Millisecond), effects, report)
	totals, err := w.Totals(t.Context())
	require.NoError(t, err)
	assert.Empty(t, problems)
	assertPromises(t, report, totals)
	assert.Zero(t, report.Untruthful, "no effect was answered, and there was one")
	for id, of := range uids {
		assert.Len(t, of, 1, "%s was scheduled more than once", id)
	}
	since := func(counter string) int { return int(totals.Counters[counter] - before.Counters[counter]) }
	assert.Equal(t, effects.Created, since("scheduled"), "one message for each schedule")
	assert.Equal(t, effects.Cancelled, since("cancelled"))
	assert.LessOrEqual(t, report.Duplicates, since("reclaimed")+since("suspected_duplicates"))
}

// killAll kills each part once, in any order, and some while others are dead; and then Redis and all bridges, to see that
// nothing was acknowledged that could not be done. It returns the order.
func killAll(ctx context.Context, t *testing.T, w *trial.World, in *trial.Inlet, random *rand.Rand) (order string) {
	t.Helper()
	parts := []part{{"redis", w.Redis, true}, {w.Broker.Name(), w.Broker.Server(), true}} // Servers start first.
	bridges := bridgesOf(w)
	parts = append(parts, bridges...)
	pause := func() {
		require.NoError(t, trial.Sleep(ctx, time.Duration(random.Int64N(int64(1500*time.Millisecond)))))
	}
	dead := make([]bool, len(parts))
	kill := func(i int) {
		require.NoError(t, parts[i].process.Kill())
		dead[i] = true
		order += parts[i].name + " "
	}
	heal := func() {
		for i, p := range parts {
			if dead[i] {
				require.NoError(t, p.process.Start(ctx), p.name)
				dead[i] = false
			}
		}
		order += "| "
	}
	for _, i := range random.Perm(len(parts)) {
		pause()
		kill(i)
		pause()
		if random.IntN(2) == 0 {
			heal()
		}
	}
	heal()
	pause()
	kill(0)
	require.NoError(t, trial.Sleep(ctx, 500*time.Millisecond)) // The bridges have got what they cannot do.
	for i := range bridges {
		kill(len(parts) - len(bridges) + i)
	}
	require.Eventually(t, func() bool { // Answers are on their way, and RabbitMQ notices a while later.
		ahead, err := in.Ahead(ctx)
		return err == nil && ahead <= 0
	}, time.Minute, 100*time.Millisecond, "acknowledged, and not answered")
	heal()
	return order
}
