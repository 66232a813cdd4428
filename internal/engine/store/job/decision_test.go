package job

import (
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
)

// TestCourseTable: how a job's next step begins.
func TestCourseTable(t *testing.T) {
	t.Parallel()
	const left, flying = "left", "in flight"
	walks := map[string]Spec{"names": {Filter: inspect.Filter{State: inspect.StateInFlight}}, "a list": {Filter: inspect.Filter{State: inspect.StateScheduled}}}
	decision.Walk(t, "course.go", []decision.Input{
		decision.Bool("a step has no answer"), decision.Bool("told to stop"), decision.Bool("walked to the end"), decision.Bool("names left to read"),
		decision.Bool("some were in flight"), decision.Bool("older than a life"), decision.Or("it walks by", decision.Names(walks)...),
	}, func(d decision.Case) string {
		now := time.Unix(1<<30, 0)
		c := &course{record: record{Job: Job{Spec: walks[d["it walks by"]], StartedAt: now}}, isTold: d.Is("told to stop")}
		r := &c.record
		if d.Is("a step has no answer") {
			r.Step = &step{}
		}
		if d.Is("walked to the end") {
			r.Part = len(r.Spec.walk())
		}
		if d.Is("names left to read") {
			r.Rest = []string{left}
		}
		if d.Is("some were in flight") {
			r.Left = []string{flying}
		}
		if d.Is("older than a life") {
			r.StartedAt = now.Add(-life - 1)
		}
		switch a := c.next(now, 10); {
		case a.kind == actionKeep && a.record.Step != nil:
			return "repeat that step"
		case a.kind == actionKeep:
			return "end: " + string(a.record.State)
		case a.kind == actionLook && a.names[0] == left:
			return "look at these"
		case a.kind == actionLook && a.names[0] == flying:
			return "look at those in flight"
		case a.kind == actionScan:
			return "scan"
		case a.kind == actionList:
			return "list"
		}
		return "something else"
	})
}
