package preflight

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// topicsPatience is how long a sink waits for the topics of waiting messages.
	topicsPatience = 10 * time.Second
	// topicsMost is how many topics of a sink are checked.
	topicsMost = 256
	// closePatience is how long a sink may take to close.
	closePatience = 2 * time.Second
)

// sink looks at one broker. It closes the sink.
func (f *Flight) sink(ctx context.Context, name string, sink sinks.Sink) []check.Finding {
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
		defer cancel()
		_ = sink.Close(closing) // Nothing was published.
	}()
	checker, ok := sink.(sinks.Checker)
	if !ok {
		if err := sink.Ping(ctx); err != nil {
			return []check.Finding{{Level: check.Error, Code: "sink_unreachable", What: err.Error(), Why: "nothing is published until it answers", Remedy: "correct sinks." + name}}
		}
		return nil
	}
	plan, queue := f.plan(ctx, name)
	findings := checker.Check(ctx, plan)
	for i := range findings {
		findings[i].Remedy = strings.ReplaceAll(findings[i].Remedy, "sinks.*", "sinks."+name)
	}
	worst, _ := check.Worst(findings)
	if len(plan.Topics) == 0 && worst < check.Error && queue != "" {
		findings = append(findings, check.Finding{
			Level: check.Note, Code: "sink_topics",
			What:   "no topic is known: nothing waits, and none was named",
			Why:    "the check could not see whether topics exist and keep messages",
			Remedy: "bridge check --config FILE --topic " + queue + "=TOPIC",
		})
	}
	return findings
}

// plan is what the queues of a sink will publish; queue is one of them.
func (f *Flight) plan(ctx context.Context, sink string) (plan sinks.Plan, queue string) {
	timer := time.NewTimer(topicsPatience)
	defer timer.Stop()
	known := false
	select {
	case <-f.found:
		known = true
	case <-timer.C:
	case <-ctx.Done():
	}
	cfg := f.config
	plan.Again = cfg.Poller.ClaimTimeout + cfg.Poller.Lease + cfg.Sinks[sink].PublishTimeout
	for name, of := range cfg.Queues {
		if of.Sink != sink {
			continue
		}
		queue = name
		plan.MaxMessage = max(plan.MaxMessage, int(of.MaxMessage))
		plan.Topics = append(plan.Topics, f.topicsOf(name)...)
		if known {
			plan.Topics = append(plan.Topics, f.waiting[name]...)
		}
	}
	for _, inlet := range cfg.Inlets {
		if inlet.Sink == sink {
			plan.Topics = append(plan.Topics, inlet.Replies, inlet.Dead)
		}
	}
	plan.Topics = slices.DeleteFunc(plan.Topics, func(topic string) bool { return topic == "" })
	slices.Sort(plan.Topics)
	plan.Topics = slices.Compact(plan.Topics)
	plan.Topics = plan.Topics[:min(len(plan.Topics), topicsMost)]
	return plan, queue
}
