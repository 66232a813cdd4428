package poller

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// learningSink knows only the topic at first, and learns later which part of it a message goes to.
type learningSink struct {
	*fakeSink
	part *atomic.Value
}

func (l learningSink) Route(*message.Message) sinks.Route { return l.part.Load().(sinks.Route) }

// TestOrderWhereAPartFailsBesideItsTopic parks messages of a Key while only their topic is
// known, and has their part of it fail once, when it is known: they go out in due order (I15).
func TestOrderWhereAPartFailsBesideItsTopic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var part atomic.Value
		part.Store(sinks.Route("t"))
		var blipped atomic.Bool
		b := setup(t, func(c *Config, b *bench) {
			c.Sink.Sink = learningSink{b.sink, &part}
			b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
				switch {
				case part.Load() == sinks.Route("t"):
					return all(batch, missing)
				case !blipped.Swap(true):
					o := sinks.Failed(sinks.Unknown, sinks.ReasonConnection, errBroker)
					o.Route = "t/3"
					return all(batch, o)
				}
				return all(batch, acked)
			}
			now := b.store.now()
			for i := range 10 {
				b.store.add(keyed(fmt.Sprintf("%03d", i), "k", now.Add(time.Duration(i)*time.Millisecond)))
			}
		})
		b.pass(3 * time.Second)
		part.Store(sinks.Route("t/3"))
		b.pass(time.Minute)
		assert.Len(t, b.store.acked, 10)
		for i := range 9 {
			assert.LessOrEqual(t, b.sink.last(fmt.Sprintf("%03d", i)), b.sink.last(fmt.Sprintf("%03d", i+1)))
		}
	})
}
