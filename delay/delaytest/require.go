package delaytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// tolerance is the permitted difference between the expected and the actual due time:
// producers that compute it with a clock of their own are a little off.
const tolerance = time.Second

// AnyTime tells [Queue.RequireScheduled] that the due time does not matter. The zero
// [delay.When] does not: it counts as forgotten and is refused.
var AnyTime = delay.At(time.Unix(-1, 0))

// Scheduled returns the messages that wait, in due order, of these topics, or of all
// if none is given.
func (q *Queue) Scheduled(topics ...string) []delay.Info {
	q.t.Helper()
	return q.list(inspect.StateScheduled, topics)
}

// Dead returns the dead letters, oldest first, of these topics, or of all if none is
// given.
func (q *Queue) Dead(topics ...string) []delay.Info {
	q.t.Helper()
	return q.list(inspect.StateDead, topics)
}

func (q *Queue) list(state inspect.State, topics []string) (found []delay.Info) {
	q.t.Helper()
	request := inspect.ListRequest{Filter: inspect.Filter{State: state}, Limit: inspect.MaxList}
	reader := q.Client
	if keys := q.bridge.keys; keys != nil {
		reader = q.NewClient(delay.WithEncryption(keys))
	}
	for {
		page, err := inspect.NewAdmin(q.store).List(q.ctx(), request)
		q.must("list", err)
		for _, m := range page.Messages {
			if len(topics) > 0 && !slices.Contains(topics, m.Found.Topic) {
				continue
			}
			info, err := reader.Get(q.ctx(), delay.Ref{ID: m.Found.ID, Key: m.Found.Key})
			q.must("get "+m.Found.ID, err)
			found = append(found, info)
		}
		if request.After = page.Next; request.After == "" {
			return found
		}
	}
}

// RequireScheduled returns the first waiting message to the topic that is due then,
// give or take a second, and fails the test at once if there is none:
//
//	m := queue.RequireScheduled("order.timeout", delay.After(30*time.Minute))
//	m := queue.RequireScheduled("order.timeout", delaytest.AnyTime)
func (q *Queue) RequireScheduled(topic string, when delay.When) delay.Info {
	q.t.Helper()
	if err := when.Check(); err != nil {
		q.t.Fatalf("delaytest: %v; or AnyTime", err)
	}
	waiting := q.Scheduled()
	at, isAt := when.Instant()
	if !isAt {
		at = q.Now().Add(when.Delay())
	}
	for _, m := range waiting {
		if m.Topic == topic && (when == AnyTime || m.DueAt.Sub(at).Abs() <= tolerance) {
			return m
		}
	}
	due := ""
	if when != AnyTime {
		due = ", due " + q.tell(at)
	}
	q.t.Fatalf("delaytest: no message to %q waits%s; %s", topic, due, q.describe("waiting", waiting))
	return delay.Info{}
}

// RequireNotScheduled fails the test at once if a message to one of the topics waits,
// or any message if none is given.
func (q *Queue) RequireNotScheduled(topics ...string) {
	q.t.Helper()
	if waiting := q.Scheduled(topics...); len(waiting) > 0 {
		q.t.Fatalf("delaytest: no message should wait%s; %s", to(topics), q.describe("waiting", waiting))
	}
}

// RequirePublished returns the last message published to the topic, and fails the
// test at once if there is none.
func (q *Queue) RequirePublished(topic string) Published {
	q.t.Helper()
	found := q.Published(topic)
	if len(found) == 0 {
		q.t.Fatalf("delaytest: nothing was published to %q; %s; %s; %s", topic, q.describePublished(q.Published()),
			q.describe("waiting", q.Scheduled()), q.describe("dead", q.Dead()))
	}
	return found[len(found)-1]
}

// RequireNotPublished fails the test at once if a message was published to one of the
// topics, or any message if none is given.
func (q *Queue) RequireNotPublished(topics ...string) {
	q.t.Helper()
	if found := q.Published(topics...); len(found) > 0 {
		q.t.Fatalf("delaytest: nothing should be published%s; %s", to(topics), q.describePublished(found))
	}
}

// RequireNothing fails the test at once if a message to one of the topics waits,
// was published or is in the dead letters, or any message if none is given.
func (q *Queue) RequireNothing(topics ...string) {
	q.t.Helper()
	q.RequireNotScheduled(topics...)
	q.RequireNotPublished(topics...)
	if dead := q.Dead(topics...); len(dead) > 0 {
		q.t.Fatalf("delaytest: no message should be dead%s; %s", to(topics), q.describe("dead", dead))
	}
}

func to(topics []string) string {
	if len(topics) == 0 {
		return ""
	}
	return " to " + strings.Join(topics, ", ")
}

// describe lists messages, one a line, without their bodies.
func (q *Queue) describe(state string, messages []delay.Info) string {
	if len(messages) == 0 {
		return "nothing is " + state
	}
	var text strings.Builder
	text.WriteString(state + " are:")
	for _, m := range messages {
		fmt.Fprintf(&text, "\n  %s  %s  due %s", m.Topic, name(m.ID, m.Key), q.tell(m.DueAt))
		if m.Reason != "" {
			text.WriteString("  " + m.Reason)
		}
	}
	return text.String()
}

func (q *Queue) describePublished(messages []Published) string {
	if len(messages) == 0 {
		return "nothing was published"
	}
	var text strings.Builder
	text.WriteString("published were:")
	for _, m := range messages {
		fmt.Fprintf(&text, "\n  %s  %s  at %s", m.Topic, name(m.ID, m.Key), q.tell(m.At))
	}
	return text.String()
}

func name(id, key string) string {
	if key == "" {
		return id
	}
	return id + " (key " + key + ")"
}

// tell formats an instant, absolute and relative to now.
func (q *Queue) tell(at time.Time) string {
	from := "now"
	switch d := at.Sub(q.Now()); {
	case d > 0:
		from = "in " + message.Brief(d)
	case d < 0:
		from = message.Brief(-d) + " ago"
	}
	return from + " (" + at.UTC().Format(message.TimeFormat) + ")"
}
