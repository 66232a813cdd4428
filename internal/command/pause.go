package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// pauseFlags name a queue, or one topic of it.
type pauseFlags struct {
	queueFlags
	Topic string `placeholder:"TOPIC" help:"Only this topic. Default: the whole queue."`
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
	return `Nothing is published until it is resumed: waiting messages keep waiting, those in flight are
finished. Messages can be scheduled, cancelled and moved as usual. All bridges hear of it at once,
or within a second or two; restarts and changes of the shards do not end it. A second pause
changes nothing.

Example:

    bridge pause --config bridge.yaml --queue orders --topic order.timeout`
}

func (c pauseCommand) Run(p *program) error {
	return c.change(p, "pause", func(s *session) (operate.PauseChange, error) {
		return s.Pause(s.ctx, c.Topic, by())
	}, func(now *operate.PauseChange) string {
		text := fmt.Sprintf("%s is paused since %s%s", c.what(), now.Since, waiting(now))
		if now.InFlight != nil {
			text += fmt.Sprintf(", %d in flight", *now.InFlight)
		}
		return text
	})
}

type resumeCommand struct{ pauseFlags }

func (resumeCommand) Help() string {
	return `Due messages are published in due order. If nothing is paused, nothing changes.

Example:

    bridge resume --config bridge.yaml --queue orders`
}

func (c resumeCommand) Run(p *program) error {
	return c.change(p, "resume", func(s *session) (operate.PauseChange, error) {
		return s.Resume(s.ctx, c.Topic)
	}, func(now *operate.PauseChange) string {
		if now.Since == "" {
			return c.what() + " was not paused"
		}
		return fmt.Sprintf("%s is resumed, it was paused since %s%s", c.what(), now.Since, waiting(now))
	})
}

// waiting says how much a pause is about, as far as that is known.
func waiting(now *operate.PauseChange) string {
	if now.Waiting == nil {
		return ""
	}
	verb := "wait"
	if *now.Waiting == 1 {
		verb = "waits"
	}
	text := fmt.Sprintf(": %s %s in the queue, %d of them due", count(int(*now.Waiting), "message"), verb, *now.Due)
	if now.Topic != "" {
		text += fmt.Sprintf(", %d of the topic parked", *now.Parked)
	}
	return text
}

// change pauses or resumes, and prints the effect.
func (f pauseFlags) change(p *program, verb string, do func(*session) (operate.PauseChange, error), describe func(*operate.PauseChange) string) error {
	return f.changing(p, inspect.Change{Action: verb, Topic: f.Topic}, func(s *session, _ *inspect.Change) error {
		now, err := do(s)
		switch {
		case err != nil:
			return s.fail(verb, "", err)
		case s.asJSON:
			return writeJSON(p.stdout, now)
		}
		_, err = fmt.Fprintln(p.stdout, describe(&now))
		return err
	})
}

// by is who pauses, in the words of the audit.
func by() string {
	name, host := operator()
	return name + "@" + host
}

// describePaused writes a line for each pause of the queue.
func (s *session) describePaused(paused map[string]pause.Pause) error {
	for _, topic := range slices.Sorted(maps.Keys(paused)) {
		what := pauseFlags{queueFlags{Queue: s.Name}, topic}.what()
		if _, err := fmt.Fprintf(s.program.stdout, "\n%s is paused since %s by %s\n", what, formatTime(paused[topic].Since), cmp.Or(paused[topic].By, "unknown")); err != nil {
			return err
		}
	}
	return nil
}
