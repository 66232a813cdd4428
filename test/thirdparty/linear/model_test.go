package linear

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// verb is what is done about an id.
type verb uint8

const (
	schedule verb = iota
	keep          // schedule with the policy Keep
	replace
	cancel
	reschedule
	get
	claim  // by a bridge, of what the broker has stored later
	settle // by a bridge, of what the broker has stored before
	over   // at the end, when nothing waits and nothing is in flight
)

func (v verb) String() string {
	return [...]string{"schedule", "keep", "replace", "cancel", "reschedule", "get", "claim", "settle", "over"}[v]
}

// answer is what a call has told.
type answer uint8

const (
	unknown answer = iota // it may have had its effect
	refused               // it had none
	done
	maybe // done, and a copy may be out
	existing
	tooLate
	notFound
	waits // get: scheduled
	flies // get: in flight
)

func (a answer) String() string {
	return [...]string{"unknown", "refused", "done", "maybe published", "exists", "too late", "not found", "scheduled", "in flight"}[a]
}

// call is one operation on an id, from the one instant to the other.
type call struct {
	verb   verb
	answer answer
	// isAgain says that an earlier run of this call may have had its effect.
	isAgain bool
	// isLoose says that the death of a primary may have taken its effect back.
	isLoose bool
	// isForgetful says that what was remembered of ended messages is not told here.
	isForgetful bool
	// isSure says that replicas had its effect, where it had one.
	isSure bool

	who     int
	attempt int   // of a claim
	life    uint8 // the message: that of the call, or the one that was seen
	due     int64 // ms
	end     end   // that get has told
	from    time.Time
	to      time.Time
}

func (c *call) String() string {
	return fmt.Sprintf("%s m%d due %s -> %s (again %t, sure %t, loose %t, %s)", c.verb, c.life, clock(c.due), c.answer, c.isAgain, c.isSure, c.isLoose, c.end)
}

// end is how the last message ended that is remembered.
type end struct {
	isPublished, isCancelled bool
	due                      int64
}

func (e end) String() string {
	switch {
	case e.isPublished:
		return "last published, due " + clock(e.due)
	case e.isCancelled:
		return "last cancelled, due " + clock(e.due)
	default:
		return "none ended"
	}
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("05.000") }

type phase uint8

const (
	absent phase = iota
	waiting
	inFlight
)

// mark says whether a copy may be out.
type mark uint8

const (
	unmarked mark = iota
	open          // the callers cannot tell
	marked
)

// state is an id as it may be.
type state struct {
	phase phase
	life  uint8
	mark  mark
	due   int64
	end   end
	// created are the lives that began, ended those that a caller has ended: no repetition
	// brings these back.
	created, ended uint64
}

func (s state) String() string {
	return fmt.Sprintf("%s m%d due %s %s, %s", [...]string{"absent", "waiting", "in flight"}[s.phase], s.life, clock(s.due),
		[...]string{"", "maybe marked", "marked"}[s.mark], s.end)
}

func (s state) with(life uint8, due int64, m mark) state {
	s.phase, s.life, s.due, s.mark = waiting, life, due, m
	s.created |= 1 << life
	return s
}

func (s state) without(e end) state {
	if e != (end{}) {
		s.end = e
	}
	s.phase, s.life, s.due, s.mark = absent, 0, 0, unmarked
	return s
}

func (s state) endedByCaller() state {
	s.ended |= 1 << s.life
	return s
}

// outcome is what a verb may tell, and leave.
type outcome struct {
	answer answer
	state  state
}

// model is an id.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(s, input, _ any) (next []any) {
		for _, n := range step(s.(state), input.(*call)) {
			next = append(next, n)
		}
		return next
	},
	DescribeOperation: func(input, _ any) string { return input.(*call).String() },
	DescribeState:     func(s any) string { return s.(state).String() },
}).ToModel()

// step returns what an id may be after a call.
func step(s state, c *call) (next []state) {
	states := []state{s}
	if s.phase == inFlight { // It may have been given back since: by one who could not tell that it is published.
		states = append(states, s.with(s.life, s.due, marked))
	}
	for _, s := range states {
		if c.answer == unknown || c.isLoose {
			next = append(next, s)
		}
		for _, o := range outcomes(s, c) {
			if o.answer == c.answer || c.answer == unknown {
				next = append(next, o.state)
			}
		}
	}
	return next
}

// outcomes returns what may come of a call if the id is in that state.
func outcomes(s state, c *call) []outcome {
	// A message that is due may have been in flight without being published: whoever claimed
	// it died, or could not have the claim confirmed.
	isDue := s.phase == waiting && s.due <= c.to.UnixMilli()
	if isDue && s.mark == unmarked && c.verb != get && c.verb != claim {
		s.mark = open
	}
	late := s.phase == inFlight || isDue
	var all []outcome
	add := func(is bool, a answer, next state) {
		if is {
			all = append(all, outcome{a, next})
		}
	}
	switch c.verb {
	case schedule, keep, replace:
		return scheduled(s, c, late)
	case cancel:
		gone := s.endedByCaller().without(end{isCancelled: true, due: s.due})
		add(s.phase == absent, notFound, s)
		add(s.phase == waiting && s.mark != marked, done, gone)
		add(s.phase == waiting && s.mark != unmarked, maybe, gone)
		add(late, tooLate, s)
	case reschedule:
		add(s.phase == absent, notFound, s)
		add(s.phase == waiting && s.mark != marked, done, s.with(s.life, c.due, unmarked))
		add(s.phase == waiting && s.mark != unmarked, maybe, s.with(s.life, c.due, marked))
		add(late, tooLate, s)
	case get:
		is := c.isForgetful || s.end == c.end
		isIt := s.life == c.life && s.due == c.due
		add(is && s.phase == absent, notFound, s)
		add(is && s.phase == waiting && isIt, waits, s)
		add(is && late && isIt, flies, s)
	case claim:
		if s.phase == waiting && s.life == c.life && s.due == c.due {
			s.phase = inFlight
			add(true, done, s)
		}
	case settle: // It may come too late, or get lost with a primary.
		add(true, done, s)
		add(s.phase == inFlight && s.life == c.life && s.due == c.due, done, s.without(end{isPublished: true, due: s.due}))
	case over:
		add(s.phase == absent, done, s)
	}
	return all
}

func scheduled(s state, c *call, late bool) (all []outcome) {
	is := uint64(1) << c.life
	if c.isAgain && s.created&is != 0 {
		all = append(all, outcome{done, s}) // As the earlier run has answered.
	}
	m := unmarked
	if c.isAgain {
		m = open
	}
	if s.created&is != 0 { // And published.
		m = marked
	}
	isOther := s.phase != absent && (!c.isAgain || s.life != c.life)
	switch {
	case s.phase == absent && s.ended&is == 0:
		all = append(all, outcome{done, s.with(c.life, c.due, m)})
	case isOther && c.verb != replace:
		all = append(all, outcome{existing, s})
	case isOther:
		if late {
			all = append(all, outcome{tooLate, s})
		}
		if s.phase == waiting && s.created&is == 0 { // Its mark stays: its copy may be out.
			all = append(all, outcome{done, s.endedByCaller().with(c.life, c.due, max(s.mark, m))})
		}
	}
	return all
}

// check looks for an order of the calls, no longer than that.
func check(calls []call, limit time.Duration) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	operations := make([]porcupine.Operation, len(calls))
	for i := range calls {
		operations[i] = porcupine.Operation{
			ClientId: calls[i].who, Input: &calls[i], Call: calls[i].from.UnixNano(), Return: calls[i].to.UnixNano(),
		}
	}
	return porcupine.CheckOperationsVerbose(model, operations, limit)
}

// lastInstant is behind all others.
var lastInstant = time.Unix(0, math.MaxInt64)
