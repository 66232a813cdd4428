package inlet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// rateOver is how many whole seconds the rate is of.
const rateOver = 10

// state is what operators ask about an inlet. It is safe for concurrent use: the inlet changes it while somebody
// looks at it.
type state struct {
	mu    sync.Mutex
	began time.Time
	// isConnected is by the source; lost is why it is not, nil before the first session.
	isConnected bool
	sessionAt   time.Time
	lost        error
	// cause is what it waits for, since waitsAt; "" if it waits for nothing.
	cause   string
	why     error
	waitsAt time.Time

	inHand   int
	waiting  *int64 // at the broker; nil if it has not told
	toldAt   time.Time
	results  map[operate.InletResult]int64 // by result without its count
	repeated int64
	refused  *operate.InletRefusal
	rate     meter
}

func newState(now time.Time) *state {
	return &state{began: now, sessionAt: now, results: map[operate.InletResult]int64{}}
}

// session notes that the source has begun to consume, or with an error, that it does not.
func (s *state) session(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isConnected := err == nil; s.isConnected != isConnected {
		s.isConnected, s.sessionAt = isConnected, time.Now()
	}
	s.lost = err
	s.wait("", nil) // What was in hand comes again.
	s.inHand = 0
	if err != nil {
		s.waiting = nil // Others may take what waits.
	}
}

// waits notes that what is in hand must wait, or with no cause, that it need not.
func (s *state) waits(cause string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait(cause, why)
}

// wait holds s.mu.
func (s *state) wait(cause string, why error) {
	if s.cause == "" && cause != "" {
		s.waitsAt = time.Now()
	}
	s.cause, s.why = cause, why
}

// ready notes whether Redis answers, where the source asks before it consumes.
func (s *state) ready(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.wait(operate.CauseRedis, err)
		s.lost = nil // The broker answers: it was asked first.
	case s.cause == operate.CauseRedis:
		s.wait("", nil)
	}
}

func (s *state) holds(messages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inHand = messages
}

// behind notes how many messages wait at the broker.
func (s *state) behind(messages int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.toldAt = &messages, time.Now()
}

// done counts a message.
func (s *state) done(op, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[operate.InletResult{Op: op, Result: result}]++
	s.rate.add(time.Since(s.began))
}

func (s *state) repeats() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeated++
}

func (s *state) refuses(it *item) {
	r := &operate.InletRefusal{
		At: operate.Stamp(time.Now()), Position: it.Position, Field: it.result.Error.Field, Reason: source.HeaderText(it.result.Error.Message, errorMost),
	}
	if message.CheckIdentity(it.ID, "") == nil {
		r.ID = it.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = r
}

// view is the state for operators.
func (s *state) view(now time.Time) operate.InletState {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := operate.InletState{
		State: operate.InletConsuming, Since: operate.Stamp(s.sessionAt), InHand: s.inHand, Repeated: s.repeated, Refused: s.refused,
		Rate: s.rate.of(now.Sub(s.began)), Results: []operate.InletResult{},
	}
	if s.waiting != nil {
		waiting := *s.waiting
		v.Behind, v.BehindAt = &waiting, operate.Stamp(s.toldAt)
	}
	for result, count := range s.results {
		result.Count = count
		v.Results = append(v.Results, result)
	}
	slices.SortFunc(v.Results, func(a, b operate.InletResult) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Result, b.Result))
	})
	switch {
	case s.cause != "" && s.isConnected:
		v.State, v.Since, v.Cause, v.Reason = operate.InletWaiting, operate.Stamp(s.waitsAt), s.cause, s.why.Error()
	case s.cause == operate.CauseRedis && s.lost == nil: // It does not consume before Redis answers.
		v.State, v.Cause, v.Reason = operate.InletDisconnected, s.cause, s.why.Error()
	case !s.isConnected:
		v.State, v.Cause = operate.InletDisconnected, operate.CauseBroker
		if s.lost != nil {
			v.Reason = s.lost.Error()
		}
	}
	return v
}

// meter counts by the second.
type meter struct {
	last   int64 // the second of the newest count
	counts [rateOver + 1]int64
}

// add counts one at that time.
func (m *meter) add(at time.Duration) {
	m.turn(at)
	m.counts[m.last%int64(len(m.counts))]++
}

// turn drops what is too old.
func (m *meter) turn(at time.Duration) {
	second := int64(at / time.Second)
	for gone := max(m.last+1, second-rateOver); gone <= second; gone++ {
		m.counts[gone%int64(len(m.counts))] = 0
	}
	m.last = max(m.last, second)
}

// of is the rate of the last whole seconds; nil before there are so many.
func (m *meter) of(at time.Duration) *operate.InletRate {
	if m.turn(at); m.last < rateOver {
		return nil
	}
	sum := -m.counts[m.last%int64(len(m.counts))] // This second is not over.
	for _, n := range m.counts {
		sum += n
	}
	return &operate.InletRate{Over: rateOver, Done: float64(sum) / rateOver}
}
