package sinks_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChains(t *testing.T) {
	t.Parallel()
	of := func(key, topic string) message.Message { return message.Message{Key: key, Topic: topic} }
	chains := sinks.NewChains([]message.Message{
		of("a", "t"), of("", "t"), of("a", "t"), of("a", "u"), of("b", "t"), of("a", "t"), of("", "t"),
	})
	require.Equal(t, []int{0, 1, 3, 4, 6}, chains.Heads())
	next, ok := chains.Next(0)
	require.True(t, ok)
	require.Equal(t, 2, next)
	require.Equal(t, []int{2, 5}, chains.Rest(0))
	require.Equal(t, []int{5}, chains.Rest(2))
	for _, last := range []int{1, 3, 4, 5, 6} {
		_, ok = chains.Next(last)
		require.False(t, ok, last)
		require.Empty(t, chains.Rest(last))
	}
	require.Empty(t, sinks.NewChains(nil).Heads())
}

// The way of a chain is open behind a message that was acknowledged, or refused by itself.
func TestAChainIsSettled(t *testing.T) {
	t.Parallel()
	batch := make([]message.Message, 4)
	for i := range batch {
		batch[i] = message.Message{Key: "a", Topic: "t"}
	}
	for _, class := range []sinks.Class{sinks.Unknown, sinks.Acknowledged, sinks.Permanent, sinks.Retryable, sinks.Unavailable} {
		chains, outcomes := sinks.NewChains(batch), sinks.NewOutcomes(len(batch))
		next, ok := chains.Settle(0, sinks.Acked(), outcomes)
		require.Equal(t, []any{1, true}, []any{next, ok})
		next, ok = chains.Settle(1, sinks.FailedWhole(class, sinks.ReasonTimeout, nil), outcomes)
		if class != sinks.Unknown && class != sinks.Unavailable {
			require.Equal(t, []any{2, true}, []any{next, ok}, class)
			require.Equal(t, 2, outcomes.Left(), class)
			select {
			case <-outcomes.Done():
				t.Error("two have no outcome")
			default:
			}
			continue
		}
		require.False(t, ok, class)
		<-outcomes.Done()
		behind := sinks.FailedWhole(sinks.Unavailable, sinks.ReasonTimeout, nil)
		require.Equal(t, []sinks.Outcome{sinks.Acked(), sinks.FailedWhole(class, sinks.ReasonTimeout, nil), behind, behind}, outcomes.All())
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	outcomes := sinks.NewOutcomes(4)
	require.Empty(t, outcomes.Changed())
	require.True(t, outcomes.Report(2, sinks.Acked()))
	require.False(t, outcomes.Report(2, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, nil)), "the first counts")
	<-outcomes.Changed()
	first := outcomes.Take()
	require.Len(t, first, 1)
	require.Equal(t, 2, first[0].Index)
	require.Equal(t, sinks.Acknowledged, first[0].Class)
	require.False(t, first[0].At.IsZero())
	require.Empty(t, outcomes.Take(), "taken once")
	require.Equal(t, 3, outcomes.Left())

	var reporting sync.WaitGroup
	for i := range 4 {
		reporting.Go(func() { outcomes.Report(i, sinks.Acked()) })
	}
	reporting.Go(func() { _ = first[0] }) // For the race detector: no lock is needed.
	reporting.Go(func() { outcomes.Rest(sinks.Failed(sinks.Unavailable, sinks.ReasonClosed, errors.New("closed"))) })
	reporting.Wait()
	require.Zero(t, outcomes.Left())
	var rest []int
	for _, report := range outcomes.Take() {
		rest = append(rest, report.Index)
	}
	require.ElementsMatch(t, []int{0, 1, 3}, rest)
	require.Equal(t, sinks.Acknowledged, outcomes.All()[2].Class)
	require.Equal(t, sinks.Unknown, sinks.NewOutcomes(1).All()[0].Class, "nothing is acknowledged by a default")
}
