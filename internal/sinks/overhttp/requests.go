package overhttp

import (
	"maps"
	"slices"
	"sync"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// EachTopic calls publish for each topic of a batch, for all of them at once, with the heads of its chains, and
// waits.
func EachTopic(batch []message.Message, chains *sinks.Chains, publish func(topic string, heads []int)) {
	heads := map[string][]int{}
	for _, head := range chains.Heads() {
		heads[batch[head].Topic] = append(heads[batch[head].Topic], head)
	}
	var publishing sync.WaitGroup
	for _, topic := range slices.Sorted(maps.Keys(heads)) {
		publishing.Go(func() { publish(topic, heads[topic]) })
	}
	publishing.Wait()
}

// Requests makes requests of the messages that are ready, and then of those behind them, until none is left: at most so
// many are under way. next takes the entries of one request from those that are ready; without any it has settled some.
// send makes the request, and returns the messages that are ready then.
func Requests[E any](most int, ready []int, next func(ready []int) (entries []E, rest []int), send func(entries []E) (ready []int)) {
	answered := make(chan []int)
	for underWay := 0; len(ready) > 0 || underWay > 0; {
		if len(ready) == 0 || underWay == most {
			ready = append(ready, <-answered...)
			underWay--
			continue
		}
		var entries []E
		if entries, ready = next(ready); len(entries) > 0 {
			underWay++
			go func() { answered <- send(entries) }()
		}
	}
}
