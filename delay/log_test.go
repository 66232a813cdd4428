package delay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// lines are what a logger has written.
func lines(t *testing.T, written *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(written.Bytes()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(line, &fields))
		all = append(all, fields)
	}
	return all
}

// TestLogger: a call that was done only after a reply was lost has a line; others have none.
func TestLogger(t *testing.T) {
	t.Parallel()
	var written bytes.Buffer
	f := newFar(t, delay.WithLogger(slog.New(slog.NewJSONHandler(&written, nil))))
	var err error
	f.lost(t, func() { _, err = f.client.Schedule(t.Context(), order, delay.After(time.Hour)) }, "scheduled", 1, func() {})
	require.NoError(t, err)
	require.ErrorIs(t, f.client.Cancel(t.Context(), delay.Ref{ID: "nobody"}), delay.ErrNotFound)
	told := lines(t, &written)
	require.Len(t, told, 1)
	assert.Equal(t, "WARN", told[0]["level"])
	assert.Equal(t, "repeated", told[0]["event"])
	assert.Equal(t, "schedule", told[0]["verb"])
	assert.Equal(t, f.queue.Name(), told[0]["queue"])
	assert.NotEmpty(t, told[0]["cause"])
	assert.Positive(t, told[0]["took"])
	assert.NotContains(t, written.String(), order.ID)
}

// TestLoggerIsBounded: a line a second, which counts those without one.
func TestLoggerIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		add := delay.NewRepeatedLog(slog.New(slog.NewJSONHandler(&written, nil)))
		for range 25 {
			add(store.Repetition{Verb: "cancel", Took: time.Second, Cause: errors.New("no answer")})
			<-time.After(100 * time.Millisecond)
		}
		told := lines(t, &written)
		require.Len(t, told, 3)
		for i, more := range []float64{0, 9, 9} {
			assert.InDelta(t, more, told[i]["more"], 0)
		}
	})
}
