package inputs

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// entrance is a way in for what others write.
type entrance interface {
	name() string
	// inputs makes the inputs. Where answers come by themselves, as those of rows do, it
	// hands all inputs in, so that the wait for them is one.
	inputs(context.Context) ([]input, error)
}

// aim is where inputs would go if they were good.
type aim struct {
	queue, topic string
	seed
}

// message is what bad ones differ from in one thing. Each would take the place of
// the first message that is kept.
func (a aim) message() delay.Message {
	return delay.Message{ID: keptID, Topic: a.topic, Body: []byte("bad")}
}

// members are a message in JSON, in the place of the first that is kept.
func (a aim) members() []member {
	return []member{
		{"id", quote(keptID)},
		{"key", `""`},
		{"topic", quote(a.topic)},
		{"in", `"1h"`},
		{"spread", `"1m"`},
		{"body", `"bad"`},
		{"headers", `{"good": "a"}`},
		{"tags", `["good"]`},
		{"late", `{"after": "1h", "then": "dead"}`},
		{"conflict", `"replace"`},
	}
}

// seed makes what is random repeatable.
type seed uint64

// random is the same for the same seed and name.
func (s seed) random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(uint64(s), h.Sum64())) //nolint:gosec // to be repeated
}

// patience bounds the wait for answers that come by themselves, as those of rows. It
// begins with the first wait and is one for all of an entrance: who asks later waits no longer.
type patience struct{ until time.Time }

func (p *patience) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	const longest = 2 * time.Minute // A busy machine takes its time.
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(longest)
	}
	until := p.until
	if soon := now.Add(time.Second); until.Before(soon) {
		until = soon
	}
	return context.WithDeadline(ctx, until)
}
