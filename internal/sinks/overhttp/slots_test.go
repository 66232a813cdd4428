package overhttp

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// What has waited since before a failure fares no better, and is not tried: what comes after it is.
func TestMayAsk(t *testing.T) {
	t.Parallel()
	s := NewSlots(1, func(err error) sinks.Outcome { return sinks.Failed(sinks.Unavailable, sinks.ReasonTimeout, err) })
	before := time.Now().Add(-time.Second)
	_, ok := s.mayAsk(before)
	require.True(t, ok)
	s.Failed(sinks.FailedWhole(sinks.Unknown, sinks.ReasonConnection, errors.New("cut")))
	refusal, ok := s.mayAsk(before)
	require.False(t, ok)
	require.Equal(t, sinks.Unavailable, refusal.Class, "it was not handed over")
	require.Equal(t, sinks.ReasonConnection, refusal.Reason)
	_, ok = s.mayAsk(time.Now().Add(time.Second))
	require.True(t, ok)

	held := sinks.Outcome{Class: sinks.Unknown, Reason: sinks.ReasonBroker, OfRoute: true}
	s.Answered(held, time.Minute)
	refusal, ok = s.mayAsk(time.Now().Add(time.Second))
	require.False(t, ok)
	require.Equal(t, sinks.Unavailable, refusal.Class)
	require.False(t, refusal.OfRoute)
}
