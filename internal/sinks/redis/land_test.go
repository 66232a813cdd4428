package redis

import (
	"errors"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// A submission that ends while its answer is being reported never takes what Redis has
// stored for what was not handed over.
func TestEndMeetsTheAnswer(t *testing.T) {
	t.Parallel()
	s := New(goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"}), Config{})
	t.Cleanup(func() { require.NoError(t, s.client.Close()) })
	isStored := map[sinks.Class]int{}
	for range 5_000 {
		const size = 20
		c := &submission{
			batch: make([]message.Message, size), flights: make([]*flight, size), outcomes: sinks.NewOutcomes(size),
		}
		c.chains = sinks.NewChains(c.batch)
		f := &flight{sink: s}
		f.state.Store(inTheAir)
		for index := range c.batch {
			f.items = append(f.items, publication{c, index})
			c.flights[index] = f
			answered := xadd{goredis.NewStringCmd(t.Context())}
			answered.SetVal("1-1")
			f.commands = append(f.commands, answered)
		}
		var both sync.WaitGroup
		both.Go(func() { s.land(&queue{}, f) })
		both.Go(func() { s.end(c, sinks.Outcome{Reason: sinks.ReasonClosed, Err: errors.New("over")}) })
		both.Wait()
		for _, outcome := range c.outcomes.All() {
			isStored[outcome.Class]++
		}
	}
	require.Zero(t, isStored[sinks.Unavailable], "%v", isStored)
	require.NotZero(t, isStored[sinks.Acknowledged], "%v", isStored)
}
