package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
)

// pauseFlags name a queue, or one topic of it.
type pauseFlags struct {
	queueFlags
	Topic string `placeholder:"TOPIC" help:"Only this topic. Without it the whole queue."`
}

// what is the queue or the topic in a sentence.
func (f pauseFlags) what() string {
	if f.Topic == "" {
		return "queue " + f.Queue
	}
	return fmt.Sprintf("topic %s of queue %s", f.Topic, f.Queue)
}

type pauseCommand struct{ pauseFlags }

func (pauseCommand) Help() string {
	return `Nothing is published any more until it is resumed: what waits goes on waiting, what is in flight
is finished. Messages can be scheduled, cancelled and moved as ever. All bridges hear of it at once,
or within a second or two; restarts and changes of the shards do not end it. To pause what is
paused changes nothing.

Example:

    bridge pause --config bridge.yaml --queue orders --topic order.timeout`
}

func (c pauseCommand) Run(p *program) error {
	return c.change(p, "pause", func(s *session) (pauseJSON, error) {
		since, err := inspect.NewAdmin(s.queue).Pause(s.ctx, c.Topic, by())
		return pauseJSON{Paused: true, Since: stamp(since)}, err
	}, func(now pauseJSON) string {
		return fmt.Sprintf("%s is paused since %s: %s, %d in flight", c.what(), *now.Since, now.waiting(), now.InFlight)
	})
}

type resumeCommand struct{ pauseFlags }

func (resumeCommand) Help() string {
	return `What is due is published in due order. To resume what is not paused changes nothing.

Example:

    bridge resume --config bridge.yaml --queue orders`
}

func (c resumeCommand) Run(p *program) error {
	return c.change(p, "resume", func(s *session) (pauseJSON, error) {
		since, err := inspect.NewAdmin(s.queue).Resume(s.ctx, c.Topic)
		return pauseJSON{Since: stamp(since)}, err
	}, func(now pauseJSON) string {
		if now.Since == nil {
			return c.what() + " was not paused"
		}
		return fmt.Sprintf("%s goes on, it was paused since %s: %s", c.what(), *now.Since, now.waiting())
	})
}

// pauseJSON is what a pause or a resume did, as programs see it.
type pauseJSON struct {
	Queue string `json:"queue"`
	// Topic is empty for the whole queue.
	Topic  string `json:"topic"`
	Paused bool   `json:"paused"`
	// Since is when the pause began; null where there was none.
	Since *string `json:"since"`
	// Waiting counts the queue's messages that wait, Due those of them that are due and
	// not parked, Parked those that are parked: of the topic, where there is one.
	Waiting  int64 `json:"waiting"`
	Due      int64 `json:"due"`
	Parked   int64 `json:"parked"`
	InFlight int64 `json:"in_flight"`
}

func (j *pauseJSON) waiting() string {
	text := fmt.Sprintf("%s wait in the queue, %d of them due", count(int(j.Waiting), "message"), j.Due)
	if j.Topic != "" {
		text += fmt.Sprintf(", %d of the topic parked", j.Parked)
	}
	return text
}

// change pauses or resumes, and tells what it means.
func (f pauseFlags) change(p *program, verb string, do func(*session) (pauseJSON, error), describe func(pauseJSON) string) error {
	return f.changing(p, inspect.Change{Action: verb, Topic: f.Topic}, func(s *session, made *inspect.Change) error {
		now, err := do(s)
		if invalid, ok := errors.AsType[*message.InvalidError](err); ok {
			return usagef("--topic %s", invalid.Error())
		}
		if errors.Is(err, inspect.ErrManyPaused) {
			return &failure{code: "many_paused", exit: exitRefused, cause: err}
		}
		if err == nil {
			made.Answer = "done"
			now.Queue, now.Topic = f.Queue, f.Topic
			err = s.countPaused(&now)
		}
		switch {
		case err != nil:
			return s.fail(verb, "", err)
		case s.asJSON:
			return writeJSON(p.stdout, now)
		}
		_, err = fmt.Fprintln(p.stdout, describe(now))
		return err
	})
}

// by is who pauses, in the words of the audit.
func by() string {
	name, host := operator()
	return name + "@" + host
}

// countPaused counts what a pause keeps.
func (s *session) countPaused(now *pauseJSON) error {
	stats, err := s.stats()
	if err != nil {
		return err
	}
	sum := stats.Sum()
	now.Waiting, now.Due, now.InFlight = sum.Waiting, sum.Due, sum.InFlight
	for _, r := range sum.Routes {
		// A part of a topic is named behind it.
		if now.Topic == "" || r.Route == now.Topic || strings.HasPrefix(r.Route, now.Topic+"/") {
			now.Parked += int64(r.Messages)
		}
	}
	return nil
}

// describePaused writes a line for each pause of the queue.
func (s *session) describePaused(paused map[string]pause.Pause) error {
	for _, topic := range slices.Sorted(maps.Keys(paused)) {
		what := pauseFlags{queueFlags{Queue: s.name}, topic}.what()
		if _, err := fmt.Fprintf(s.program.stdout, "\n%s is paused since %s by %s\n", what, formatTime(paused[topic].Since), cmp.Or(paused[topic].By, "unknown")); err != nil {
			return err
		}
	}
	return nil
}
