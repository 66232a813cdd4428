package sim

import (
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/poller"
)

// plan is what a seed decides before anything happens: the setting, and when what is to begin.
// Each decision has chance of its own, so that one can be left out and the others stay as they
// are: that is how a story is shrunk.
type plan struct {
	seed      uint64
	span      time.Duration // of the story with trouble
	isCalm    bool          // there is no trouble at all
	isOfSink  bool          // there is none but that of topics at the broker
	isOfRows  bool          // of the outbox: nothing gets lost but in the night, and no clock is set, which rules would have to allow for
	isHeavy   bool          // many messages are due at once, which weigh much where they are settled
	shards    int
	batch     int
	inFlight  int
	durable   bool
	bridges   int
	history   layout.History
	box       boxConfig
	decisions []*decision

	fleet     fleet
	producers []*producer
	clients   []io.Closer // of producers, to be closed at the end
	operator  *operator
	actors    sync.WaitGroup
}

// decision is one burst of messages, or one trouble.
type decision struct {
	index int
	at    time.Duration
	kind  string
	seed  uint64
}

func (d *decision) random() *rand.Rand { return rand.New(rand.NewPCG(d.seed, 7)) }

const (
	simHealed = 30 * time.Minute // until all is out, at the most
	simSettle = time.Minute      // until all is out that is due
	actLasts  = 20 * time.Second // Three times as long finds faults no sooner for the processor time that it takes.
)

// newPlan makes the plan of a seed, without those decisions.
func newPlan(seed uint64, without map[int]bool) *plan {
	random := rand.New(rand.NewPCG(seed, 2))
	p := &plan{
		seed: seed, isCalm: random.IntN(20) == 0, shards: 1 + random.IntN(3), batch: 1 + random.IntN(20), inFlight: 1 + random.IntN(4),
		durable: random.IntN(4) == 0, bridges: 1 + random.IntN(2),
	}
	p.box = newBoxConfig(random)
	if p.isOfSink, p.isHeavy = random.IntN(12) == 0, random.IntN(8) == 0; p.isHeavy {
		p.batch = 60
	}
	if p.isOfRows = !p.isOfSink && random.IntN(6) == 0; p.isOfRows {
		p.box.isThere, p.box.skew = true, 0
	}
	p.span = time.Hour
	p.fleet.policy = poller.Policy{
		Retry: poller.Retry{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Attempts: 3 + random.IntN(20)}, ParkPatience: time.Hour,
	}
	add := func(at time.Duration, kind string) {
		p.decisions = append(p.decisions, &decision{len(p.decisions), at, kind, random.Uint64()})
	}
	add(actLasts, "night")
	bursts, troubles := []string{"burst", "burst", "burst", "outbox"}, conditions
	if !p.box.isThere {
		bursts, troubles = bursts[:3], conditions[:slices.Index(conditions, "outbox")]
	}
	switch {
	case p.isOfSink:
		troubles = ofSink
	case p.isOfRows:
		bursts, troubles = bursts[3:], ofRows
		if !p.isCalm {
			add(actLasts-between(random, 5*time.Second, 10*time.Second), "evening")
		}
	}
	for at := time.Duration(0); at < 2*actLasts; at += between(random, 100*time.Millisecond, 20*time.Second) {
		add(p.when(at+time.Second), bursts[random.IntN(len(bursts))])
	}
	if !p.isCalm {
		for at := time.Duration(0); at < 2*actLasts; at += between(random, 50*time.Millisecond, 15*time.Second) {
			kind := troubles[random.IntN(len(troubles))]
			if kind == "wipe" && random.IntN(3) > 0 { // After it little is left to be told.
				kind = "order"
			}
			add(p.when(at+3*time.Second), kind)
		}
	}
	if p.durable && !p.isCalm && !p.isOfSink {
		for act := range time.Duration(2) {
			add(p.when(act*actLasts+between(random, time.Second, actLasts)), "no replicas")
		}
	}
	kept := p.decisions[:0:0]
	for _, d := range p.decisions {
		if !without[d.index] {
			kept = append(kept, d)
		}
	}
	p.decisions = kept
	return p
}

// when is the instant of the story: between two acts there is a night without bridges.
func (p *plan) when(at time.Duration) time.Duration {
	if at < actLasts {
		return at
	}
	return p.span - 2*actLasts + at
}

// morning is when bridges are there again.
func (p *plan) morning() time.Duration { return p.span - actLasts - 10*time.Second }

func (p *plan) layout() store.Layout {
	return store.Layout{Shards: p.shards, Sink: message.NATS, MaxMessage: message.DefaultMaxSize, Rules: layout.Rules{History: p.history}}
}
