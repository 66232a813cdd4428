package delay_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// TestDone tells what took effect, also of an error that tells two things.
func TestDone(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, delay.ErrMaybePublished, delay.ErrNotDurable, errors.Join(delay.ErrMaybePublished, delay.ErrNotDurable)} {
		require.True(t, delay.Done(err), err)
	}
	for _, err := range []error{
		delay.ErrUnknown, delay.ErrForgotten, delay.ErrTooLate, delay.ErrNotFound, errors.Join(delay.ErrDuplicate, delay.ErrNotDurable),
		delay.ErrInvalid, delay.ErrFull, delay.ErrUnavailable, delay.ErrNoLayout, errors.New("else"),
	} {
		require.False(t, delay.Done(err), err)
	}
}

// TestInvalidError is found in whatever call it comes from.
func TestInvalidError(t *testing.T) {
	t.Parallel()
	client := newPlace(t, kafka).client(t)
	_, err := client.Schedule(t.Context(), delay.Message{Topic: "t/"}, delay.After(0))
	_, errConflict := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(0))
	require.NoError(t, errConflict)
	wrong := new(delay.InvalidError)
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "topic", wrong.Field)
	require.Equal(t, "t/", wrong.Value)
	require.ErrorIs(t, err, delay.ErrInvalid)
}

// TestConflictOfAMessage goes before the client's.
func TestConflictOfAMessage(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	for policy, want := range map[delay.Conflict]delay.Status{delay.AsClient: "", delay.Keep: delay.Existing, delay.Replace: delay.Replaced} {
		client := p.client(t, delay.WithConflict(policy))
		m := delay.Message{ID: fmt.Sprint(policy), Topic: "t"}
		_, err := client.Schedule(t.Context(), m, delay.After(time.Hour))
		require.NoError(t, err)
		again := func(c delay.Conflict) delay.Request {
			return delay.Request{Message: m, When: delay.After(time.Hour), Conflict: c}
		}
		results, err := client.ScheduleBatch(t.Context(), []delay.Request{
			again(delay.Replace), again(delay.AsClient), again(delay.Keep), again(delay.Reject), again(9),
		})
		require.NoError(t, err)
		require.Equal(t, delay.Replaced, results[0].Status)
		require.Equal(t, want, results[1].Status)
		require.Equal(t, delay.Existing, results[2].Status)
		require.ErrorIs(t, results[3].Err, delay.ErrDuplicate)
		require.ErrorIs(t, results[4].Err, delay.ErrInvalid)
	}
}

// TestCancelBatch tells the truth of each.
func TestCancelBatch(t *testing.T) {
	t.Parallel()
	p := newPlace(t, kafka)
	client := p.client(t)
	put := func(m delay.Message, when delay.When) {
		m.Topic = "t"
		_, err := client.Schedule(t.Context(), m, when)
		require.NoError(t, err)
	}
	put(delay.Message{ID: "flying"}, delay.At(time.Unix(1, 0)))
	p.finish(t, inFlight)
	put(delay.Message{ID: "keyed", Key: "k"}, delay.After(time.Hour))
	refs, want := []delay.Ref{{ID: "flying"}, {ID: "gone"}, {ID: ""}, {ID: "keyed"}}, []error{delay.ErrTooLate, delay.ErrNotFound, delay.ErrInvalid, delay.ErrInvalid}
	for i := range 120 {
		put(delay.Message{ID: fmt.Sprint(i)}, delay.After(time.Hour))
		refs, want = append(refs, delay.Ref{ID: fmt.Sprint(i)}), append(want, nil)
	}
	refs, want = append(refs, delay.Ref{ID: "0"}), append(want, delay.ErrNotFound)
	results, err := client.CancelBatch(t.Context(), refs)
	require.NoError(t, err)
	for i, r := range results {
		require.Equal(t, refs[i], r.Ref)
		require.ErrorIs(t, r.Err, want[i], "%d: %v", i, r.Ref)
		require.Equal(t, want[i] == nil, delay.Done(r.Err))
	}
	stats, err := inspect.NewAdmin(p.queue).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 120, stats.Counters["cancelled"])
}
