package delay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// customers schedules messages of two customers and of nobody, whose names are alike.
func customers(t *testing.T, client *delay.Client, count int, when delay.When) {
	t.Helper()
	var requests []delay.Request
	for i := range count {
		for _, c := range []struct{ tag, key string }{{"7", "c*7"}, {"77", "c*77"}, {"", "c-7"}, {"7", ""}} {
			m := delay.Message{ID: fmt.Sprintf("%s-%d", c.tag, i), Key: c.key, Topic: "t"}
			if c.tag != "" {
				m.Tags = []string{c.tag}
			}
			requests = append(requests, delay.Request{Message: m, When: when})
		}
	}
	results, err := client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
}

// TestCancelAll cancels just what the filter means, and may be called again.
func TestCancelAll(t *testing.T) {
	t.Parallel()
	const count = 700
	for name, c := range map[string]struct {
		filter delay.Filter
		done   int
	}{
		"tag":         {delay.Filter{Tag: "7"}, 2 * count},
		"key":         {delay.Filter{Key: "c*7"}, count},
		"both":        {delay.Filter{Tag: "7", Key: "c*7"}, count},
		"nobodys tag": {delay.Filter{Tag: "777"}, 0},
		"nobodys key": {delay.Filter{Key: "c"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, message.NATS)
			client := w.client(t)
			customers(t, client, count, delay.After(time.Hour))
			found, err := client.CancelAll(t.Context(), c.filter)
			require.NoError(t, err)
			require.Equal(t, delay.CancelCount{Done: c.done}, found)
			again, err := client.CancelAll(t.Context(), c.filter)
			require.NoError(t, err)
			require.Zero(t, again)
			left := 0
			for shard := range 4 {
				stats, err := inspect.NewAdmin(w.queue).Stats(t.Context(), shard)
				require.NoError(t, err)
				left += int(stats.Waiting)
			}
			require.Equal(t, 4*count-c.done, left)
		})
	}
}

// TestCancelAllTellsTheTruth: dead letters go, copies that may be out are counted apart, and
// what is in flight is too late.
func TestCancelAllTellsTheTruth(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]delay.Filter{"tag": {Tag: "tag"}, "key": {Key: "key"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, message.NATS)
			client := w.client(t)
			inFlight := message.Verdict{Verb: -1}
			for i, end := range []message.Verdict{
				{Verb: message.VerbDeadLetter, Reason: "refused"},
				{Verb: message.VerbPark, Slot: 7},
				inFlight,
				{Verb: message.VerbRelease, Published: true, Attempts: message.Attempts{Begun: 1, MaybeOut: 1, Unknowns: 1}},
			} {
				m := delay.Message{ID: fmt.Sprint(i), Key: "key", Topic: "t", Tags: []string{"tag"}}
				_, err := client.Schedule(t.Context(), m, delay.At(time.Unix(1, 0)))
				require.NoError(t, err)
				layout, err := w.queue.Layout(t.Context())
				require.NoError(t, err)
				home := w.queue.Shard(layout.Home("", "key"))
				claim, err := home.Claim(t.Context(), message.ClaimRequest{
					Token: message.ClaimToken{Instance: "bridge/boot", Number: uint64(i) + 1}, Max: 10, Timeout: time.Hour, Lease: time.Hour,
				})
				require.NoError(t, err)
				require.Len(t, claim.Messages, 1)
				if end == inFlight {
					continue
				}
				_, err = home.Settle(t.Context(), message.Settlement{Claim: claim, Verdicts: []message.Verdict{end}})
				require.NoError(t, err)
			}
			found, err := client.CancelAll(t.Context(), filter)
			require.NoError(t, err)
			require.Equal(t, delay.CancelCount{Done: 2, MaybePublished: 1, TooLate: 1}, found)
		})
	}
}

// TestCancelAllBesideBridges: what is claimed and released meanwhile is cancelled, or too late.
func TestCancelAllBesideBridges(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]delay.Filter{"tag": {Tag: "7"}, "key": {Key: "c*7"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const count = 1000
			w := newWorld(t, message.NATS)
			client := w.client(t)
			customers(t, client, count, delay.At(time.Unix(1, 0)))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			claim := func(shard int, number uint64, most int) (message.Claim, error) {
				return w.queue.Shard(shard).Claim(t.Context(), message.ClaimRequest{
					Token: message.ClaimToken{Instance: "bridge/boot", Number: number}, Max: most, Timeout: time.Hour, Lease: time.Hour,
				})
			}
			for shard := range 4 {
				running.Go(func() {
					number := uint64(1)
					for ; ctx.Err() == nil; number++ {
						taken, err := claim(shard, number, 50)
						if err != nil || len(taken.Messages) == 0 {
							continue
						}
						settlement := message.Settlement{Claim: taken}
						for range taken.Messages {
							settlement.Verdicts = append(settlement.Verdicts, message.Verdict{Verb: message.VerbRelease})
						}
						_, _ = w.queue.Shard(shard).Settle(t.Context(), settlement)
					}
					assert.Eventually(t, func() bool { // What calls without an answer have left goes back.
						taken, err := claim(shard, number, 0)
						for _, stray := range taken.Strays {
							_, _, failed := w.queue.Shard(shard).Reclaim(t.Context(), message.Reclaim{Instance: "bridge/boot", Stray: stray})
							err = errors.Join(err, failed)
						}
						number++
						return err == nil
					}, time.Minute, time.Millisecond)
				})
			}
			first, err := client.CancelAll(t.Context(), filter)
			require.NoError(t, err)
			cancel()
			running.Wait()
			t.Logf("%+v", first)
			rest, err := client.CancelAll(t.Context(), filter)
			require.NoError(t, err)
			require.LessOrEqual(t, rest.Done+rest.MaybePublished, first.TooLate, "all others were met")
			want := count
			if filter.Tag != "" {
				want *= 2
			}
			require.Equal(t, want, first.Done+first.MaybePublished+rest.Done+rest.MaybePublished, "%+v", rest)
		})
	}
}

// TestCancelAllStops: at its caller's deadline it says how far it came, and goes on when it
// is called again; what cannot be meant is refused.
func TestCancelAllStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client := w.client(t)
	for text, filter := range map[string]delay.Filter{"filter": {}, "tag": {Tag: "a b"}, "key": {Key: "a\x00b"}} {
		_, err := client.CancelAll(t.Context(), filter)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
	customers(t, client, 100, delay.After(time.Hour))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := client.CancelAll(ended, delay.Filter{Tag: "7"})
	require.Error(t, err)
	require.Zero(t, found)
	asked := w.client(t, delay.WithDurability(delay.Replicas(1)), delay.WithTimeout(5*time.Second))
	found, err = asked.CancelAll(t.Context(), delay.Filter{Key: "c*7"})
	require.ErrorIs(t, err, delay.ErrNotDurable)
	require.Equal(t, 100, found.Done, "it is done all the same")
}
