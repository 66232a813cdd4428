package sizing

import (
	"cmp"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Plan is the load of a queue.
type Plan struct {
	// Rate is how many messages are scheduled a second, on average; Peak is the most that are
	// scheduled, or fall due, in a second. 0 is the same as Rate.
	Rate, Peak float64
	// Delay is how long a message waits, on average, until it is published or cancelled.
	Delay time.Duration
	// Outage is how long the broker may be away while messages are still accepted.
	Outage time.Duration
	// Bytes of a message: ID is that of id and key, Headers that of their names and values. 0 of
	// ID and Topic is what is usual.
	ID, Topic, Headers, Body int
	// Replicas is how many each primary of Redis has.
	Replicas int
	// Shards of the queue; 0 is what Of recommends.
	Shards int
	// Outbox is nil where no message is a row first.
	Outbox *Outbox
}

// Outbox is what of the configuration decides how many rows there are.
type Outbox struct {
	// Horizon is how long before its due time a message is taken to Redis, Keep how long a row
	// stays after its end.
	Horizon, Keep time.Duration
}

// Limits of a plan; beyond them the constants say nothing.
const (
	MaxRate     = 1_000_000 // messages a second
	MaxDelay    = message.MaxDelayYears * 365 * 24 * time.Hour
	MaxOutage   = 30 * 24 * time.Hour
	MaxReplicas = 5

	leastRate  = 0.001
	usualID    = 26
	usualTopic = 20
)

// limited is a field with its limits.
type limited struct {
	field       string
	value       any
	isAllowed   bool
	least, most any
}

// withDefaults fills in what is not given, and checks the limits.
func (p Plan) withDefaults() (Plan, error) {
	p.Peak, p.ID, p.Topic = cmp.Or(p.Peak, p.Rate), cmp.Or(p.ID, usualID), cmp.Or(p.Topic, usualTopic)
	limits := []limited{
		{"rate", p.Rate, p.Rate >= leastRate && p.Rate <= MaxRate, leastRate, MaxRate},
		{"peak", p.Peak, p.Peak >= p.Rate && p.Peak <= MaxRate, fmt.Sprintf("the rate, %g", p.Rate), MaxRate},
		{"delay", p.Delay, p.Delay >= time.Millisecond && p.Delay <= MaxDelay, time.Millisecond, MaxDelay},
		{"outage", p.Outage, p.Outage >= 0 && p.Outage <= MaxOutage, "0s", MaxOutage},
		within("id", p.ID, 1, message.MaxIDLength+message.MaxKeyLength),
		within("topic", p.Topic, 1, message.MaxTopicLength),
		within("headers", p.Headers, 0, message.DefaultMaxSize),
		within("body", p.Body, 0, message.DefaultMaxSize-p.ID-p.Topic-p.Headers),
		within("replicas", p.Replicas, 0, MaxReplicas),
	}
	if o := p.Outbox; o != nil {
		limits = append(limits,
			limited{"horizon", o.Horizon, o.Horizon >= time.Second && o.Horizon <= MaxDelay, time.Second, MaxDelay},
			limited{"keep", o.Keep, o.Keep >= 0 && o.Keep <= MaxDelay, "0s", MaxDelay})
	}
	for _, l := range limits {
		if !l.isAllowed {
			return p, fmt.Errorf("%s: %v must be from %v to %v", l.field, l.value, l.least, l.most)
		}
	}
	return p, nil
}

func within(field string, value, least, most int) limited {
	return limited{field, value, value >= least && value <= most, least, most}
}
