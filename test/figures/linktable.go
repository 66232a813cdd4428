package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	sampleEvery = 250 * time.Millisecond
	// atPaceFor is how long the bridge must keep its pace to count as back.
	atPaceFor = 3 * time.Second
)

// sample is what was to be seen at one instant.
type sample struct {
	at                       time.Duration // since the due time
	limitMessages, limitKB   float64
	flightMessages, flightKB float64
	arrived                  int
}

// course is how the window and the arrivals went.
type course []sample

// follow takes samples until ctx ends.
func (c *course) follow(ctx context.Context, w *flow.World, since time.Time) error {
	gauge := func(name string) string { return "delaybridge_window_" + name + `{sink="broker"}` }
	limitMessages, limitBytes := gauge("limit_messages"), gauge("limit_bytes")
	usedMessages, usedBytes := gauge("used_messages"), gauge("used_bytes")
	for {
		seen, err := w.Bridge.Metrics(ctx, limitMessages, limitBytes, usedMessages, usedBytes)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // It is the end of the drain.
		}
		if err != nil {
			return err
		}
		*c = append(*c, sample{
			at: time.Since(since), limitMessages: seen[limitMessages], limitKB: seen[limitBytes] / 1000,
			flightMessages: seen[usedMessages], flightKB: seen[usedBytes] / 1000, arrived: w.Ledger.Arrived(),
		})
		if pause(ctx, sampleEvery) != nil {
			return nil //nolint:nilerr // It is the end of the drain.
		}
	}
}

// backAfter is how long after an instant it took until so many messages a second
// arrived for a while; false where they never did.
func (c course) backAfter(instant time.Duration, perSecond float64) (time.Duration, bool) {
	for i, from := range c {
		if from.at < instant {
			continue
		}
		for _, to := range c[i+1:] {
			if lasted := to.at - from.at; lasted >= atPaceFor {
				if rate(to.arrived-from.arrived, lasted) >= perSecond {
					return from.at - instant, true
				}
				break
			}
		}
	}
	return 0, false
}

// eachSecond are the samples nearest to full seconds.
func (c course) eachSecond() (some course) {
	for _, s := range c {
		if s.at >= time.Duration(len(some))*time.Second {
			some = append(some, s)
		}
	}
	return some
}

// ofRaw is the pace relative to the sink alone.
func (r *linkResult) ofRaw() float64 { return r.perSecond() / r.trial.raw.perSecond }

// perSecond is the pace without the pause and without what the link carried
// meanwhile: what was in flight goes on until it stands in front of the broker.
func (r *linkResult) perSecond() float64 {
	took, count := r.took, r.count
	if r.paused {
		took, count = took-linkPause, count-int(float64(r.sentPaused)/r.trial.raw.bytesEach)
	}
	return rate(count, took)
}

// back says how long after the pause the bridge was at its pace again.
func (r *linkResult) back() string {
	if !r.paused {
		return "–"
	}
	after, ok := r.course.backAfter(r.resumed, linkGoal*r.trial.raw.perSecond)
	if !ok {
		return "never"
	}
	return after.Round(100 * time.Millisecond).String()
}

// counted is how far one of the shards' counters went meanwhile.
func (r *linkResult) counted(name string) int64 {
	return r.after.Counters[name] - r.before.Counters[name]
}

// wrong is what the run missed of its goals.
func (r *linkResult) wrong() error {
	if r.copies == 0 && r.ofRaw() >= linkGoal && r.report.Wrong() == 0 && r.report.Duplicates == 0 && r.after.Dead == 0 {
		return nil
	}
	return fmt.Errorf("links %d kB/s, broker paused %t: %.2f of raw, %d copies, %d twice, %d dead letters, broken promises: %d",
		r.trial.speed, r.paused, r.ofRaw(), r.copies, r.report.Duplicates, r.after.Dead, r.report.Wrong())
}

// printLinks prints the table, and below it what the window did in each run.
func printLinks(results []*linkResult) {
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }
	printf("\n| of raw | bytes of raw's | raw of link | copies | lost | twice | back at pace | broker | kB/s | paused | messages | raw/s | bridge/s | parked | released | suspected | reclaimed | stale |\n")
	printf("|%s\n", strings.Repeat("---|", 18))
	for _, r := range results {
		raw := r.trial.raw
		printf("| %.2f | %.2f | %.2f | %d | %d | %d | %s | %s | %d | %t | %d | %.0f | %.0f | %d | %d | %d | %d | %d |\n",
			r.ofRaw(), float64(r.sent)/float64(r.count)/raw.bytesEach, raw.perSecond*raw.bytesEach/1000/float64(r.trial.speed),
			r.copies, r.report.Lost, r.report.Duplicates, r.back(), r.trial.broker, r.trial.speed, r.paused,
			r.count, raw.perSecond, r.perSecond(), r.counted("parked"), r.counted("released"),
			r.counted("suspected_duplicates"), r.counted("reclaimed"), r.counted("stale_settles"))
	}
	for _, r := range results {
		printf("\n%s, %d kB/s, broker paused: %t; each second:\n\n%s", r.trial.broker, r.trial.speed, r.paused, r.course.eachSecond())
	}
}

// String has a line for each thing that was seen, a number a sample.
func (c course) String() string {
	var text strings.Builder
	line := func(what string, value func(int) float64) {
		_, _ = fmt.Fprintf(&text, "    %-18s", what)
		for i := range c {
			_, _ = fmt.Fprintf(&text, " %.0f", value(i))
		}
		text.WriteString("\n")
	}
	line("allowed messages", func(i int) float64 { return c[i].limitMessages })
	line("in flight", func(i int) float64 { return c[i].flightMessages })
	line("allowed kB", func(i int) float64 { return c[i].limitKB })
	line("in flight", func(i int) float64 { return c[i].flightKB })
	line("arrived/s", func(i int) float64 {
		before := c[max(0, i-1)]
		return float64(c[i].arrived-before.arrived) / max(1e-3, (c[i].at-before.at).Seconds())
	})
	return text.String()
}
