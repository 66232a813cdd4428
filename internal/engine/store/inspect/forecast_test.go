package inspect_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestForecast: each message that waits is counted once, in the step in which it is
// due; a parked one is due now.
func TestForecast(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	empty, err := inspect.NewAdmin(q).Forecast(t.Context(), time.Time{}, time.Now().Add(time.Hour), time.Minute)
	require.NoError(t, err)
	require.Len(t, empty.Steps, 60)
	require.Zero(t, empty.Due+empty.Before+empty.Later)
	require.Zero(t, empty.Size)

	now, err := q.Clock(t.Context())
	require.NoError(t, err)
	from := now.Add(time.Hour)
	put := func(id string, due time.Time) { storetest.Create(t, q, id, store.When{Ms: due.UnixMilli()}) }
	for i := range 30 {
		put("due-"+strconv.Itoa(i), now.Add(-time.Minute))
	}
	put("before", from.Add(-time.Millisecond))
	put("first", from)
	put("end of first", from.Add(time.Minute-time.Millisecond))
	put("second", from.Add(time.Minute))
	put("last", from.Add(150*time.Second-time.Millisecond))
	put("later", from.Add(150*time.Second))
	put("in ten years", now.Add(10*365*24*time.Hour))

	f, err := inspect.NewAdmin(q).Forecast(t.Context(), from, from.Add(150*time.Second), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 1, 1}, f.Steps, "the last step is shorter")
	assert.EqualValues(t, 30, f.Due)
	assert.EqualValues(t, 1, f.Before)
	assert.EqualValues(t, 2, f.Later)
	assert.InDelta(t, 70, f.Size.Mean, 30, "bytes of a stored note")
	assert.Positive(t, f.Size.Sampled)

	past, err := inspect.NewAdmin(q).Forecast(t.Context(), now.Add(-time.Hour), now.Add(2*time.Hour), time.Hour)
	require.NoError(t, err)
	assert.False(t, past.From.Before(now), "nothing falls due in the past")
	assert.EqualValues(t, 30, past.Due)
	assert.Zero(t, past.Before)
}

// TestForecastParked: what is parked is due now, whatever its score.
func TestForecastParked(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Create(t, q, "a", storetest.Past())
	storetest.NewBridge(t, q).Park(7, message.ParkedRoute{Slot: 7, Route: "topic", Reason: "no leader", Since: time.UnixMilli(1_700_000_000_000)})
	storetest.Create(t, q, "b", storetest.Past())
	f, err := inspect.NewAdmin(q).Forecast(t.Context(), time.Time{}, time.Now().Add(storetest.Never), storetest.Never)
	require.NoError(t, err)
	assert.EqualValues(t, 2, f.Due)
	assert.EqualValues(t, 1, f.Parked)
	assert.Zero(t, f.Later)

	found, ok, err := inspect.Get(t.Context(), q, "a", "")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, &message.ParkedRoute{Slot: 7, Route: "topic", Reason: "no leader", Since: time.UnixMilli(1_700_000_000_000)}, found.Parked)
	found, _, err = inspect.Get(t.Context(), q, "b", "")
	require.NoError(t, err)
	assert.Nil(t, found.Parked)
}

func TestForecastRefuses(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	now := time.Now()
	for name, ask := range map[string]struct {
		from, to time.Time
		step     time.Duration
		says     string
	}{
		"step 0s":    {now, now.Add(time.Hour), 0, "1 or more"},
		"step 1.5ms": {now, now.Add(time.Hour), 1500 * time.Microsecond, "whole milliseconds"},
		"to":         {now, now.Add(-time.Hour), time.Minute, "must be after"},
		"step 1s":    {now, now.Add(time.Hour), time.Second, "more than 1440 steps"},
	} {
		_, err := inspect.NewAdmin(q).Forecast(t.Context(), ask.from, ask.to, ask.step)
		require.ErrorIs(t, err, inspect.ErrForecast, name)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, ask.says)
	}
}
