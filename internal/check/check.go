// Package check is what `bridge check` is made of: findings, and the steps that
// make them. The packages that know a part decide what to check in it: the
// sinks, store/fit, outbox/table. This package imports none of ours.
package check

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Level is how bad a finding is.
type Level int

// The levels. The zero value is the least.
const (
	// Note: nothing is wrong, as far as could be seen; it says what could not be.
	Note Level = iota
	// Warning: it works, until something fails that will fail one day.
	Warning
	// Error: it will not work.
	Error
)

// String is the level as people and programs see it.
func (l Level) String() string {
	switch l {
	case Warning:
		return "warning"
	case Error:
		return "error"
	default:
		return "note"
	}
}

// MarshalText implements [encoding.TextMarshaler].
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one problem. It holds no secret.
type Finding struct {
	Level Level `json:"level"`
	// Code names the kind of finding for programs: it stays the same.
	Code string `json:"code"`
	// Area is the part that was checked, Subject which one. [Run] fills them in;
	// a step may set Subject to name a part of its own.
	Area    string `json:"area"`
	Subject string `json:"subject"`
	// What was found, why it matters, and a command or setting that fixes it.
	What   string `json:"what"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

// Step looks at one thing.
type Step struct {
	Area, Subject string
	// Run returns what it found. It must end soon after ctx.
	Run func(ctx context.Context) []Finding
}

// Result is what came of a step.
type Result struct {
	Area     string
	Subject  string
	Took     time.Duration
	Findings []Finding
}

// The limits of [Run].
const (
	// StepLimit is how long one step may take.
	StepLimit = 30 * time.Second
	// Limit is how long all of them may take.
	Limit = time.Minute
)

// Run runs the steps beside each other and returns their results in their order,
// the findings of each worst first. A step that fails stops no other one.
func Run(ctx context.Context, steps []Step) []Result {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	results := make([]Result, len(steps))
	var running sync.WaitGroup
	for i, step := range steps {
		running.Go(func() { results[i] = step.run(ctx) })
	}
	running.Wait()
	return results
}

func (s Step) run(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, StepLimit)
	defer cancel()
	began := time.Now()
	findings := s.Run(ctx)
	for i := range findings {
		f := &findings[i]
		if f.Area == "" {
			f.Area = s.Area
		}
		switch {
		case f.Subject == "":
			f.Subject = s.Subject
		case f.Subject != s.Subject:
			f.Subject = s.Subject + ", " + f.Subject
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return int(b.Level - a.Level) })
	return Result{Area: s.Area, Subject: s.Subject, Took: time.Since(began), Findings: findings}
}

// Worst is the highest level of the findings; false if there is none.
func Worst(findings []Finding) (worst Level, found bool) {
	for _, f := range findings {
		worst, found = max(worst, f.Level), true
	}
	return worst, found
}

// Skew is the finding of a clock that is off from ours by more than a second.
// clock says whose clock it is.
func Skew(clock string, off time.Duration) []Finding {
	if off.Abs() <= MaxSkew {
		return nil
	}
	direction := "ahead of"
	if off < 0 {
		direction = "behind"
	}
	return []Finding{{
		Level: Warning, Code: "clock_skew",
		What:   fmt.Sprintf("the clock of %s is %v %s that of this machine", clock, off.Abs().Round(time.Millisecond), direction),
		Why:    "Redis' clock decides when a message is due, and a delay of an outbox row counts from its database's clock",
		Remedy: "run an NTP client on both machines: `chronyc tracking` shows how far each is off",
	}}
}

// MaxSkew is how far two clocks may differ.
const MaxSkew = time.Second

// Certain is the part of a difference between two clocks that is there for certain,
// where it took so long to ask one of them.
func Certain(off, took time.Duration) time.Duration {
	if off < 0 {
		return min(0, off+took/2)
	}
	return max(0, off-took/2)
}
