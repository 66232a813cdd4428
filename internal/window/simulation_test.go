package window_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/window"
)

// scenario is a broker behind a link, and what the shards have for it.
type scenario struct {
	shares  int                                  // 0: 8
	lasts   time.Duration                        // 0: 40 s
	latency func(at time.Duration) time.Duration // there and back, with nothing queued
	service time.Duration                        // of a message in the broker
	rate    func(at time.Duration) float64
	size    func(n int) int
	offered float64 // messages a second, 0: there is always one more
	beside  float64 // messages a second of another queue, which has one share
	// claimTakes is how long a claim takes, nil: 1 ms.
	claimTakes func(at time.Duration) time.Duration
	// paused is until when the broker does nothing, if it does nothing then.
	paused func(at time.Duration) (until time.Duration)
}

func constant(bytesPerSecond float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return bytesPerSecond }
}

func always(latency time.Duration) func(time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return latency }
}

func fixed(bytes int) func(int) int { return func(int) int { return bytes } }

// simulatedMessage is a message on its way: since when it waits, when it was handed over and
// acknowledged, all since the beginning.
type simulatedMessage struct {
	share               *simulatedShare
	bytes               int
	begins, used, acked time.Duration
	queued              time.Duration
}

// second is what happened in one second of the simulation.
type second struct {
	acks, bytes, claims int
	limit, limitBytes   int
	queued, slowest     time.Duration
}

func (s second) meanQueue() time.Duration { return s.queued / time.Duration(max(1, s.acks)) }

// flow is what the shares of a queue publish.
type flow struct {
	offered float64
	n       int
}

type simulatedShare struct {
	share     *window.Share
	of        *flow
	isAwake   bool
	claimedAt time.Duration // when the claim that runs is answered, 0: none runs
	reserved  time.Duration
	messages  int
	bytes     int
	acks      int

	inFlight, inFlightBytes int
}

// simulation drives a window in virtual time, all in one goroutine.
type simulation struct {
	scenario
	window  *window.Window
	began   time.Time
	all     []*simulatedShare
	flying  []simulatedMessage // in the order of their acknowledgements
	freeAt  time.Duration      // when the broker has dealt with all it was sent
	ackedAt time.Duration      // the last acknowledgement: they come in order
	beside  []time.Duration    // how long the other queue's messages took
	seconds []second
}

const (
	claimMost  = 500
	claimBytes = 1 << 20
	tick       = time.Millisecond
)

// simulate runs a scenario, in one goroutine: there the race detector finds nothing, and makes
// it take fifteen times as long.
func simulate(t *testing.T, sc scenario) (s *simulation) {
	t.Helper()
	if testenv.IsRaced {
		t.Skip("runs without -race: make test, make quick")
	}
	if sc.shares == 0 {
		sc.shares = 8
	}
	if sc.lasts == 0 {
		sc.lasts = 40 * time.Second
	}
	if sc.claimTakes == nil {
		sc.claimTakes = always(time.Millisecond)
	}
	synctest.Test(t, func(t *testing.T) {
		s = &simulation{
			scenario: sc, window: window.New(), began: time.Now(),
			seconds: make([]second, int(sc.lasts/time.Second)),
		}
		orders := &flow{offered: sc.offered}
		for range sc.shares {
			s.join("orders", orders)
		}
		if sc.beside > 0 {
			s.join("mails", &flow{offered: sc.beside})
		}
		for now := time.Duration(0); now < sc.lasts; now = time.Since(s.began) {
			s.step(now)
			wait.Sleep(t.Context(), s.next(now)-now)
		}
	})
	s.print(t)
	return s
}

func (s *simulation) join(queue string, of *flow) {
	shard := &simulatedShare{of: of, isAwake: true}
	shard.share = s.window.Join(queue, func() { shard.isAwake = true })
	s.all = append(s.all, shard)
}

// step does everything that happens until now.
func (s *simulation) step(now time.Duration) {
	tally := &s.seconds[now/time.Second]
	for len(s.flying) > 0 && s.flying[0].acked <= now {
		m := &s.flying[0]
		s.flying = s.flying[1:]
		s.window.Answered(1, m.bytes, m.acked-m.used)
		m.share.holds(-1, -m.bytes, false)
		m.share.acks++
		if m.share.of != s.all[0].of {
			s.beside = append(s.beside, m.acked-m.begins)
			continue
		}
		tally.acks++
		tally.bytes += m.bytes
		tally.queued += m.queued
		tally.slowest = max(tally.slowest, m.acked-m.begins)
	}
	for _, shard := range s.all {
		if shard.claimedAt > 0 && shard.claimedAt <= now {
			tally.claims++
			s.publish(shard, now)
		}
	}
	for _, shard := range s.all {
		s.reserve(shard, now)
	}
	tally.limit, tally.limitBytes = s.window.Limit()
}

// next is when something happens again, in whole ticks.
func (s *simulation) next(now time.Duration) time.Duration {
	at := s.lasts
	if len(s.flying) > 0 {
		at = s.flying[0].acked
	}
	for _, shard := range s.all {
		if shard.claimedAt > 0 {
			at = min(at, shard.claimedAt)
		}
		if shard.isAwake && shard.claimedAt == 0 {
			at = now
		}
	}
	return max(now+tick, (at + tick - 1).Truncate(tick))
}

func (s *simulation) reserve(shard *simulatedShare, now time.Duration) {
	if shard.claimedAt > 0 || !shard.isAwake || shard.of.n >= shard.of.due(now) {
		return
	}
	shard.isAwake = false
	shard.messages, shard.bytes, _ = shard.share.Reserve(claimMost, true)
	if shard.messages > 0 {
		shard.reserved, shard.claimedAt = now, now+s.claimTakes(now)
	}
}

// holds says what is in flight, by the difference.
func (shard *simulatedShare) holds(messages, bytes int, isUsed bool) {
	shard.inFlight, shard.inFlightBytes = shard.inFlight+messages, shard.inFlightBytes+bytes
	shard.share.Hold(shard.inFlight, shard.inFlightBytes, isUsed)
}

// publish hands over what was claimed: up to the bytes, but at least one message.
func (s *simulation) publish(shard *simulatedShare, now time.Duration) {
	most, bytes, n := min(shard.bytes, claimBytes), 0, 0
	due := shard.of.due(now)
	for ; n < shard.messages && shard.of.n < due; n++ {
		size := s.size(shard.of.n)
		if n > 0 && bytes+size > most {
			break
		}
		bytes += size
		s.send(simulatedMessage{share: shard, bytes: size, begins: shard.of.begins(shard.reserved), used: now})
		shard.of.n++
	}
	shard.holds(n, bytes, true)
	shard.claimedAt, shard.isAwake = 0, true
}

// due is how many messages there are until now.
func (f *flow) due(now time.Duration) int {
	if f.offered == 0 {
		return math.MaxInt
	}
	return int(f.offered * now.Seconds())
}

// begins is since when the next message waits: since it was due, as due has it, or reserved.
func (f *flow) begins(reserved time.Duration) time.Duration {
	if f.offered == 0 {
		return reserved
	}
	return time.Duration(float64(f.n+1) / f.offered * float64(time.Second))
}

// send puts a message behind the others, in the link and the broker.
func (s *simulation) send(m simulatedMessage) {
	latency := s.latency(m.used)
	begins := max(m.used+latency/2, s.freeAt)
	if s.paused != nil {
		begins = max(begins, s.paused(begins))
	}
	work := s.service + time.Duration(float64(m.bytes)/s.rate(begins)*float64(time.Second))
	s.freeAt = begins + work
	m.queued = s.freeAt - m.used - latency/2 - work
	m.acked = max(s.ackedAt, s.freeAt+latency/2)
	s.ackedAt = m.acked
	s.flying = append(s.flying, m)
}

// print shows the window's course: more often while it begins.
func (s *simulation) print(t *testing.T) {
	t.Helper()
	every := max(1, len(s.seconds)/20)
	for i, at := range s.seconds {
		if i < 6 || i%every == 0 {
			t.Logf("%5d s: %7.0f kB/s %7d msg/s, limit %6d and %6d kB, queued %6d ms, slowest %6d ms, claims of %d",
				i, float64(at.bytes)/1e3, at.acks, at.limit, at.limitBytes/1000,
				at.meanQueue().Milliseconds(), at.slowest.Milliseconds(), at.acks/max(1, at.claims))
		}
	}
}

// between sums up the seconds from one to another.
func (s *simulation) between(from, to int) (sum second) {
	for _, at := range s.seconds[from:to] {
		sum.acks += at.acks
		sum.bytes += at.bytes
		sum.claims += at.claims
		sum.queued += at.queued
		sum.slowest = max(sum.slowest, at.slowest)
	}
	return sum
}
