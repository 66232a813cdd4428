package statespace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Trace is all that has happened to one id, in the words of docs/model/DelayTrace.tla.
type Trace struct {
	Seed  uint64      `json:"seed"` // of the simulated story
	Of    string      `json:"of"`
	Steps []TraceStep `json:"steps"`
}

// TraceStep is one thing that has happened.
type TraceStep struct {
	// Is: start, repeat, run, answer (of a call); claim, publish, settle, reclaim, mark (of pollers); end.
	Is   string `json:"is"`
	Call int    `json:"call"` // from 1 on
	Verb string `json:"verb"`
	// Second: the run says that an earlier one may have happened.
	Second bool   `json:"second"`
	Says   string `json:"says"`
	Claim  int    `json:"claim"`  // from 1 on
	Claims []int  `json:"claims"` // of which one has published
	How    string `json:"how"`
	Asked  int64  `json:"asked"` // the due time that was asked for
	Now    int64  `json:"now"`   // by Redis' clock
	Due    int64  `json:"due"`   // that is in force
	// What Redis has then: the number of the message, 0 if there is none.
	Has    int  `json:"has"`
	Waits  bool `json:"waits"`
	Marked bool `json:"marked"`
}

// String is a record of TLA+.
func (s TraceStep) String() string {
	claims := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Claims), "[]"), " ", ", ")
	truth := map[bool]string{false: "FALSE", true: "TRUE"}
	return fmt.Sprintf("[is |-> %q, call |-> %d, verb |-> %q, second |-> %s, says |-> %q, claim |-> %d, claims |-> {%s}, how |-> %q, asked |-> %d, now |-> %d, due |-> %d, has |-> %d, waits |-> %s, marked |-> %s]",
		s.Is, s.Call, s.Verb, truth[s.Second], s.Says, s.Claim, claims, s.How, s.Asked, s.Now, s.Due, s.Has, truth[s.Waits], truth[s.Marked])
}

// Module is a module of TLA+ that has the model look at traces, and its configuration.
func Module(name string, traces []Trace) (module, config string) {
	var all strings.Builder
	calls, claims := 1, 1
	for i, t := range traces {
		steps := make([]string, len(t.Steps))
		for j, s := range t.Steps {
			steps[j] = s.String()
			calls, claims = max(calls, s.Call), max(claims, s.Claim)
		}
		if i > 0 {
			all.WriteString(",\n")
		}
		all.WriteString("<<" + strings.Join(steps, ",\n  ") + ">>")
	}
	module = fmt.Sprintf("---- MODULE %s ----\nEXTENDS DelayTrace\nThePollers == 1..%d\nTheProducers == 1..%d\nTheTraces == <<\n%s\n>>\n====\n", name, claims, calls, &all)
	config = "SPECIFICATION SpecT\nVIEW View\nCONSTANTS Pollers <- ThePollers Producers <- TheProducers Traces <- TheTraces\n" +
		"CONSTANTS MaxVer = 1000000 MaxTok = 1000000 MaxOps = 1000000 MarkReclaimed = TRUE CheckToken = TRUE OpMemory = TRUE RefuseReplaceInFlight = TRUE MarkRetried = TRUE QuietSecondReplace = TRUE\n"
	return module, config
}

// Mutant is a trace that has been made untrue.
type Mutant struct {
	Trace
	What string // what was done to it
	At   int    // which step
}

// Kinds are the ways to make a trace untrue.
var Kinds = []string{"drop", "double", "swap", "answer", "due", "mark"}

// Mutate makes a trace untrue in one step, by chance; ok is false if that kind of change might leave it true everywhere.
func Mutate(t Trace, kind string, random *rand.Rand) (m Mutant, ok bool) {
	for _, at := range random.Perm(len(t.Steps)) {
		steps := slices.Clone(t.Steps)
		if steps = mutations[kind](steps, at); steps != nil {
			return Mutant{Trace{t.Seed, t.Of, steps}, kind, at}, true
		}
	}
	return m, false
}

// mutations change one step, or return nil where the change might leave the trace true.
var mutations = map[string]func(steps []TraceStep, at int) []TraceStep{
	"drop":   drop,
	"double": double,
	"swap":   swap,
	"answer": answerElse,
	"due":    dueElse,
	"mark":   markElse,
}

func drop(steps []TraceStep, at int) []TraceStep {
	s := steps[at]
	rest := slices.Concat(steps[:at], steps[at+1:])
	later := rest[at:]
	isNeeded := false
	switch s.Is {
	case "start": // Something is told of a call that never began.
		isNeeded = slices.ContainsFunc(later, func(l TraceStep) bool { return l.Is == "run" && l.Call == s.Call })
	case "run": // The call is answered though it never ran.
		isNeeded = !slices.ContainsFunc(rest, func(l TraceStep) bool { return l.Is == "run" && l.Call == s.Call }) &&
			slices.ContainsFunc(later, func(l TraceStep) bool { return l.Is == "answer" && l.Call == s.Call && l.isTold() })
	case "claim": // It is settled though it never was.
		isNeeded = true
	case "publish": // It is removed though it was not published.
		isNeeded = len(s.Claims) == 1 && slices.ContainsFunc(later, func(l TraceStep) bool { return l.How == "gone" && l.Claim == s.Claims[0] })
	case "settle", "reclaim": // The claim never ends.
		isNeeded = s.How != "stale"
	}
	if !isNeeded {
		return nil
	}
	return rest
}

// isTold reports whether the call was answered with what a run has found.
func (s TraceStep) isTold() bool { return s.Says != "unknown" && s.Says != "refused" }

// isOnce reports whether the step cannot happen twice in a row.
func (s TraceStep) isOnce() bool {
	switch s.Is {
	case "run":
		return !s.Second
	case "publish":
		return len(s.Claims) == 1
	case "settle":
		return s.How != "stale"
	case "start", "repeat", "answer", "claim", "reclaim":
		return true
	}
	return false
}

func double(steps []TraceStep, at int) []TraceStep {
	if !steps[at].isOnce() {
		return nil
	}
	return slices.Insert(steps, at, steps[at])
}

// swap exchanges two steps of which the second needs the first.
func swap(steps []TraceStep, at int) []TraceStep {
	if at+1 == len(steps) {
		return nil
	}
	a, b := steps[at], steps[at+1]
	isOfCall := a.Call > 0 && a.Call == b.Call
	isOfClaim := a.Is == "claim" && (b.Claim == a.Claim && b.How != "stale" || slices.Equal(b.Claims, []int{a.Claim})) ||
		a.Is == "publish" && b.Is == "settle" && slices.Equal(a.Claims, []int{b.Claim}) && b.How != "stale"
	isTaken := b.Is == "claim" && a.Waits && (a.Is == "settle" || a.Is == "reclaim")
	if !isOfCall && !isOfClaim && !isTaken || a.Is == "run" && b.Is == "run" {
		return nil
	}
	steps[at], steps[at+1] = b, a
	return steps
}

func answerElse(steps []TraceStep, at int) []TraceStep {
	s := &steps[at]
	if s.Is != "answer" && s.Is != "run" || s.Says == "unknown" {
		return nil
	}
	if s.Says == "notfound" {
		s.Says = "done"
	} else {
		s.Says = "notfound"
	}
	return steps
}

// dueElse changes a due time that is in force, or has a message taken before it is due.
func dueElse(steps []TraceStep, at int) []TraceStep {
	s := &steps[at]
	switch {
	case s.Is == "claim" && s.Claim == 1 && at%2 == 0:
		s.Now = s.Due - 1
	case s.Is == "claim", s.Is == "publish", s.Waits:
		s.Due += 1000
	default:
		return nil
	}
	return steps
}

// markElse changes whether a message is marked; where a message goes back, both may be true.
func markElse(steps []TraceStep, at int) []TraceStep {
	s := &steps[at]
	if s.Has == 0 || s.Is == "settle" {
		return nil
	}
	s.Marked = !s.Marked
	return steps
}
