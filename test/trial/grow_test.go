package trial_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// TestGrow changes the number of shards from 4 to 64 to 16 while producers schedule,
// cancel and reschedule, and others sleep so long that the layout they know is an old one.
// Nothing of it is a fault, so no call may be refused, and what comes twice was suspected.
func TestGrow(t *testing.T) {
	t.Parallel()
	o, err := trial.Trial{
		Options: trial.Options{Binary: binary, Broker: "nats", Shards: 4, Redis: persistent()},
		Rate:    size(300, 5000), Before: size(time.Second, 10*time.Second), After: size(time.Second, 10*time.Second),
		Happen: func(ctx context.Context, w *trial.World) error { return grow(ctx, t, w) },
	}.Run(t.Context())
	require.NoError(t, err)
	t.Log(o.Report, o.Answers, o.Totals.Counters, "the longest calls: ", o.Longest)
	assertPromises(t, o.Report, o.Totals)
	assert.LessOrEqual(t, int64(o.Report.Duplicates), o.Totals.Counters["suspected_duplicates"])
	for _, verb := range []string{"schedule", "cancel", "reschedule"} {
		assert.Zero(t, o.Answers[verb+": "+delay.ErrUnavailable.Error()], verb)
	}
}

func grow(ctx context.Context, t *testing.T, w *trial.World) error {
	sleepers := make([]sleeper, 3)
	for n := range sleepers {
		if err := sleepers[n].fallAsleep(ctx, w, n); err != nil {
			return err
		}
	}
	for n, shards := range []int{64, 16} {
		begin := time.Now()
		if err := set(t, w, shards); err != nil {
			return err
		}
		t.Logf("to %d shards in %s", shards, time.Since(begin))
		if err := errors.Join(sleepers[n].wake(ctx, w), trial.Sleep(ctx, size(2*time.Second, 10*time.Second))); err != nil {
			return err
		}
	}
	if err := sleepers[2].wake(ctx, w); err != nil { // It still knows the first layout, two changes later.
		return err
	}
	for _, s := range sleepers {
		if err := s.finish(ctx, w); err != nil {
			return err
		}
	}
	layout, err := w.Store().LoadLayout(ctx)
	if err == nil && layout.Shards != 16 {
		err = fmt.Errorf("the queue has %d shards, want 16", layout.Shards)
	}
	return err
}

// set changes the number of shards as an operator does, who repeats what Redis has not answered: a loaded
// machine may stand still for seconds.
func set(t *testing.T, w *trial.World, shards int) error {
	t.Helper()
	for tries := 1; ; tries++ {
		out, err := command(t, "", binary, "shards", "set", strconv.Itoa(shards), "--config", w.Bridge.Config, "--queue", w.Queue())
		switch {
		case err == nil:
			return nil
		case tries == 3 || !strings.HasSuffix(out, "i/o timeout"):
			return fmt.Errorf("set %d shards: %w: %.500s", shards, err, out)
		}
	}
}

// sleeper is a producer that schedules messages for much later, and then does
// nothing for so long that the queue's layout changes without it.
type sleeper struct {
	client *delay.Client
	refs   []delay.Ref
}

func (s *sleeper) fallAsleep(ctx context.Context, w *trial.World, n int) (err error) {
	if s.client, err = newClient(w); err != nil {
		return err
	}
	for i := range 300 {
		m := delay.Message{ID: fmt.Sprintf("z%d-%04d", n, i), Topic: w.Topic}
		if i%2 == 0 {
			m.Key = fmt.Sprintf("z-key-%d", i)
		}
		result, err := s.client.Schedule(ctx, m, delay.After(time.Hour))
		if err != nil {
			return err
		}
		w.Ledger.Scheduled(m, result)
		s.refs = append(s.refs, result.Ref)
	}
	return nil
}

func newClient(w *trial.World) (*delay.Client, error) {
	return delay.NewClient(w.RDB, w.Queue(), delay.WithPrefix(w.Prefix()))
}

// wake cancels a third of the messages, reschedules another and schedules the last again,
// with the layout that the producer knew when it fell asleep. Nobody has touched them, so
// each answer must be done, and the last that it is there.
func (s *sleeper) wake(ctx context.Context, w *trial.World) error {
	for i, ref := range s.refs {
		var err error
		switch i % 3 {
		case 0:
			if err = s.client.Cancel(ctx, ref); err == nil {
				w.Ledger.Cancelled(ref.ID)
			}
		case 1:
			err = s.reschedule(ctx, w, s.client, ref)
		case 2:
			_, err = s.client.Schedule(ctx, delay.Message{ID: ref.ID, Key: ref.Key, Topic: w.Topic}, delay.After(time.Hour))
			if errors.Is(err, delay.ErrDuplicate) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("a producer with an old layout: %s: %w", ref.ID, err)
		}
	}
	return nil
}

// finish makes the last third due, by way of a producer that knows no layout yet.
func (s *sleeper) finish(ctx context.Context, w *trial.World) error {
	client, err := newClient(w)
	for i := 2; i < len(s.refs) && err == nil; i += 3 {
		err = s.reschedule(ctx, w, client, s.refs[i])
	}
	return err
}

func (s *sleeper) reschedule(ctx context.Context, w *trial.World, client *delay.Client, ref delay.Ref) error {
	due := time.Now().Add(time.Second)
	err := client.Reschedule(ctx, ref, delay.At(due))
	return errors.Join(err, w.Ledger.RescheduleAnswered(ref.ID, due, err))
}
