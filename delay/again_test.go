package delay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// short is the time of calls whose first run is executed and its reply lost: each waits for it, and a busy machine runs
// another within it.
const short = 2 * time.Second

// forgotten loses the reply of a call that has no time for a second run, and
// returns its error; between happens before it is repeated.
func forgotten(t *testing.T, f *farMessages, counter string, call func() error, between func()) error {
	t.Helper()
	var err error
	f.lost(t, func() { err = call() }, counter, 1, func() {})
	require.ErrorIs(t, err, delay.ErrUnknown)
	between()
	return err
}

// TestRepeatSchedule repeats a schedule whose outcome is unknown: it is the same
// call, whatever has become of the message since.
func TestRepeatSchedule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		since func(*testing.T, *farMessages, *delay.Client)
		then  error // of a cancel afterwards
	}{
		"waits": {func(*testing.T, *farMessages, *delay.Client) {}, nil},
		"cancelled": {func(t *testing.T, _ *farMessages, near *delay.Client) {
			require.NoError(t, near.Cancel(t.Context(), orderRef))
		}, delay.ErrNotFound},
		"published": {func(t *testing.T, f *farMessages, _ *delay.Client) { f.finish(t, acked) }, delay.ErrMaybePublished},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t, delay.WithTimeout(short))
			near, when := f.place.client(t), delay.At(time.Unix(1, 0))
			schedule := func(opts ...delay.CallOption) (err error) {
				_, err = f.client.Schedule(t.Context(), order, when, opts...)
				return err
			}
			err := forgotten(t, f, "scheduled", func() error { return schedule() }, func() { c.since(t, f, near) })
			require.NoError(t, schedule(delay.Repeat(err)))
			require.ErrorIs(t, near.Cancel(t.Context(), orderRef), c.then)
		})
	}
}

// TestRepeatWithoutID repeats a schedule whose ID was made by the call.
func TestRepeatWithoutID(t *testing.T) {
	t.Parallel()
	f := newFar(t, delay.WithTimeout(short))
	requests := []delay.Request{{Message: delay.Message{Topic: "t"}, When: delay.After(time.Hour)}}
	var first []delay.Result
	requests[0].Repeat = forgotten(t, f, "scheduled", func() (err error) {
		first, err = f.client.ScheduleBatch(t.Context(), requests)
		require.NoError(t, err)
		return first[0].Err
	}, func() {})
	again, err := f.client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	require.NoError(t, again[0].Err)
	require.Equal(t, first[0].Ref, again[0].Ref)
	require.EqualValues(t, 1, f.scheduled(t))
}

// TestRepeatCancel and a reschedule: the repetition answers what the first has done.
func TestRepeatCancel(t *testing.T) {
	t.Parallel()
	f := newFar(t, delay.WithTimeout(short))
	near := f.place.client(t)
	_, err := near.Schedule(t.Context(), order, delay.After(time.Hour))
	require.NoError(t, err)
	cancel := func(opts ...delay.CallOption) error { return f.client.Cancel(t.Context(), orderRef, opts...) }
	err = forgotten(t, f, "cancelled", func() error { return cancel() }, func() {})
	require.NoError(t, cancel(delay.Repeat(err)))
	require.ErrorIs(t, cancel(), delay.ErrNotFound, "a new call cannot know")
	require.ErrorIs(t, f.client.Cancel(t.Context(), delay.Ref{ID: "another"}, delay.Repeat(err)), delay.ErrInvalid)
	require.ErrorIs(t, f.client.Reschedule(t.Context(), orderRef, delay.After(0), delay.Repeat(err)), delay.ErrInvalid)
	_, err = f.client.Schedule(t.Context(), order, delay.After(0), delay.Repeat(err))
	require.ErrorIs(t, err, delay.ErrInvalid)
}

func TestRepeatReschedule(t *testing.T) {
	t.Parallel()
	f := newFar(t, delay.WithTimeout(short))
	near := f.place.client(t)
	_, err := near.Schedule(t.Context(), order, delay.After(time.Hour))
	require.NoError(t, err)
	move := func(opts ...delay.CallOption) error {
		return f.client.Reschedule(t.Context(), orderRef, delay.At(time.Unix(1, 0)), opts...)
	}
	err = forgotten(t, f, "rescheduled", func() error { return move() }, func() { f.finish(t, acked) })
	require.NoError(t, move(delay.Repeat(err)))
	require.ErrorIs(t, move(), delay.ErrNotFound, "a new call cannot know")
}

// TestRepeatUnreachable does not say that nothing was done.
func TestRepeatUnreachable(t *testing.T) {
	t.Parallel()
	f := newFar(t, delay.WithTimeout(short))
	err := forgotten(t, f, "scheduled", func() error {
		_, err := f.client.Schedule(t.Context(), order, delay.After(time.Hour))
		return err
	}, func() {})
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = f.client.Schedule(ended, order, delay.After(time.Hour), delay.Repeat(err))
	require.ErrorIs(t, err, delay.ErrUnknown)
	_, err = f.client.Schedule(t.Context(), order, delay.After(time.Hour), delay.Repeat(err))
	require.NoError(t, err, "and can be repeated again")
	require.EqualValues(t, 1, f.scheduled(t))
	_, err = f.client.Schedule(t.Context(), delay.Message{ID: "new", Topic: "t"}, delay.After(0), delay.Repeat(nil))
	require.NoError(t, err)
}
