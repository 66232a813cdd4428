package delaytest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// side is a queue with what stands behind it: the one in memory, or one in a real Redis
// with a bridge's poller.
type side interface {
	client(opts ...delay.Option) delay.Scheduler
	now() time.Time
	// pass lets time pass, and returns when that is published, or dead, which waits
	// and is due by then.
	pass(d time.Duration)
	published() []delaytest.Published
	handle(topic string, consume func(delaytest.Published))
	refuse(topic, reason string)
	pause()
	resume()
}

// transcript is what a scenario was answered, a line an answer.
type transcript struct {
	side

	t     *testing.T
	lines []string
}

// known are all errors that a call may answer here.
var known = []error{
	delay.ErrDuplicate, delay.ErrNotFound, delay.ErrTooLate, delay.ErrMaybePublished, delay.ErrUnknown, delay.ErrUnavailable,
	delay.ErrNotDurable, delay.ErrFull, delay.ErrNoLayout, delay.ErrInvalid,
}

// answer says which errors it is; the text of those that have no time in them too.
func answer(err error) string {
	if err == nil {
		return "done"
	}
	var names []string
	for _, one := range known {
		if errors.Is(err, one) {
			names = append(names, one.Error())
		}
	}
	invalid := new(message.InvalidError)
	if errors.As(err, &invalid) {
		names = append(names, invalid.Error())
	}
	if strings.Contains(err.Error(), "dead letters") {
		names = append(names, err.Error())
	}
	if len(names) == 0 {
		return "another error: " + err.Error()
	}
	return strings.Join(names, "; ")
}

func (s *transcript) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *transcript) schedule(c delay.Scheduler, m delay.Message, when delay.When) delay.Ref {
	before := s.now()
	result, err := c.Schedule(s.t.Context(), m, when)
	due := "no due time"
	if !result.DueAt.IsZero() {
		due = "due " + roughly(result.DueAt.Sub(before))
	}
	s.say("schedule %s: %s, %s, %s", m.ID, answer(err), result.Status, due)
	return result.Ref
}

func (s *transcript) cancel(c delay.Scheduler, ref delay.Ref) {
	s.say("cancel %s: %s", ref.ID, answer(c.Cancel(s.t.Context(), ref)))
}

func (s *transcript) reschedule(c delay.Scheduler, ref delay.Ref, when delay.When) {
	s.say("reschedule %s: %s", ref.ID, answer(c.Reschedule(s.t.Context(), ref, when)))
}

func (s *transcript) publishNow(c delay.Scheduler, ref delay.Ref) {
	s.say("publish now %s: %s", ref.ID, answer(c.PublishNow(s.t.Context(), ref)))
}

func (s *transcript) get(c delay.Scheduler, ref delay.Ref) {
	info, err := c.Get(s.t.Context(), ref)
	s.say("get %s: %s, %s, %s %s %v %q %v %v, attempt %d, %s", ref.ID, answer(err), info.State,
		info.ID, info.Topic, info.Headers, info.Body, info.Tags, info.Late, info.Attempt, info.Reason)
}

// told says what was published.
func (s *transcript) told() {
	for _, p := range s.published() {
		headers := make([]string, 0, len(p.Headers))
		for name, value := range p.Headers {
			switch name {
			case message.HeaderDueAt:
				value = fmt.Sprint(value == p.DueAt.UTC().Format(message.TimeFormat))
			case message.HeaderScheduledAt, message.HeaderQueue, message.HeaderUID:
				value = ""
			}
			headers = append(headers, name+"="+value)
		}
		slices.Sort(headers)
		s.say("published %s %s %s %q %v, early %v", p.ID, p.Key, p.Topic, p.Body, headers, p.At.Before(p.DueAt))
	}
}

// roughly is a delay that a slow machine does not change.
func roughly(d time.Duration) string { return d.Round(30 * time.Minute).String() }

// soon is long enough for several calls.
const soon = 400 * time.Millisecond

var (
	later = delay.After(time.Hour)
	order = delay.Message{ID: "order", Key: "k", Topic: "order.timeout", Body: []byte("42"), Headers: map[string]string{"a": "b"}}
	ref   = delay.Ref{ID: "order", Key: "k"}
)

var scenarios = map[string]func(*transcript){
	"conflicts": func(s *transcript) {
		reject, keep, replace := s.client(), s.client(delay.WithConflict(delay.Keep)), s.client(delay.WithConflict(delay.Replace))
		for _, c := range []delay.Scheduler{reject, reject, keep, replace} {
			s.schedule(c, order, later)
		}
		changed := order
		changed.Body = []byte("43")
		s.schedule(replace, changed, delay.After(2*time.Hour))
		s.get(reject, ref)
		other := order
		other.Key = ""
		s.schedule(reject, other, later)
	},
	"reuse": func(s *transcript) {
		c := s.client()
		s.cancel(c, ref)
		s.reschedule(c, ref, later)
		s.publishNow(c, ref)
		s.get(c, ref)
		s.schedule(c, order, later)
		s.cancel(c, ref)
		s.cancel(c, ref)
		s.schedule(c, order, later)
		s.publishNow(c, ref)
		s.pass(0)
		s.get(c, ref)
		s.cancel(c, ref)
		s.schedule(c, order, delay.At(s.now().Add(-time.Hour)))
		s.pass(0)
		s.told()
	},
	"in flight": func(s *transcript) {
		c, replace := s.client(), s.client(delay.WithConflict(delay.Replace))
		s.handle(order.Topic, func(delaytest.Published) {
			s.get(c, ref)
			s.cancel(c, ref)
			s.reschedule(c, ref, later)
			s.schedule(c, order, later)
			s.schedule(replace, order, later)
		})
		s.schedule(c, order, delay.After(soon))
		s.pass(soon)
		s.cancel(c, ref)
		s.told()
	},
	"dead letters": func(s *transcript) {
		c, replace := s.client(), s.client(delay.WithConflict(delay.Replace))
		s.refuse(order.Topic, "permanent invalid: refused")
		s.schedule(c, order, delay.After(0))
		s.pass(0)
		s.get(c, ref)
		s.schedule(c, order, later)
		s.reschedule(c, ref, later)
		s.get(c, ref)
		s.publishNow(c, ref)
		s.pass(0)
		s.schedule(replace, order, delay.After(0))
		s.pass(0)
		s.cancel(c, ref)
		s.get(c, ref)
		s.told()
	},
	"order": func(s *transcript) {
		c := s.client()
		base := s.now().Add(soon)
		for i, at := range []int{5, 3, 4, 1, 2, 3} {
			m := delay.Message{ID: fmt.Sprint("m", i), Key: "k", Topic: "t", Tags: []string{"b", "a", "b"}}
			s.schedule(c, m, delay.At(base.Add(time.Duration(at)*10*time.Millisecond)))
		}
		s.reschedule(c, delay.Ref{ID: "m0", Key: "k"}, delay.At(base))
		s.get(c, delay.Ref{ID: "m0", Key: "k"})
		s.pass(soon + 50*time.Millisecond)
		s.told()
	},
	"late": func(s *transcript) {
		c := s.client()
		s.pause()
		for _, then := range []delay.LateAction{delay.LatePublish, delay.LateDead, delay.LateDrop} {
			for name, after := range map[string]time.Duration{"soon": time.Millisecond, "long": time.Hour} {
				s.say("%v", c.Cancel(s.t.Context(), delay.Ref{ID: "none"}) != nil)
				m := delay.Message{ID: name + "-" + string(then), Topic: "t", Late: delay.Late{After: after, Then: then}}
				_, err := c.Schedule(s.t.Context(), m, delay.After(time.Millisecond))
				require.NoError(s.t, err)
			}
		}
		s.pass(soon)
		s.resume()
		s.pass(0)
		for _, then := range []delay.LateAction{delay.LatePublish, delay.LateDead, delay.LateDrop} {
			s.get(c, delay.Ref{ID: "soon-" + string(then)})
			s.get(c, delay.Ref{ID: "long-" + string(then)})
		}
		s.say("%d", len(s.published()))
	},
	"limits": func(s *transcript) {
		c := s.client(delay.WithMaxSize(100))
		m := func(change func(*delay.Message)) delay.Message {
			m := delay.Message{ID: "x", Topic: "order.timeout"}
			change(&m)
			return m
		}
		for _, bad := range []delay.Message{
			m(func(m *delay.Message) { m.ID = " x" }),
			m(func(m *delay.Message) { m.Key = strings.Repeat("k", 256) }),
			m(func(m *delay.Message) { m.Topic = "no space" }),
			m(func(m *delay.Message) { m.Topic = "" }),
			m(func(m *delay.Message) { m.Headers = map[string]string{"delay-id": "x"} }),
			m(func(m *delay.Message) { m.Tags = []string{"a b"} }),
			m(func(m *delay.Message) { m.Late = delay.Late{Then: "never"} }),
			m(func(m *delay.Message) { m.Body = make([]byte, 100) }),
		} {
			s.schedule(c, bad, later)
		}
		s.schedule(c, order, delay.When{})
		s.schedule(c, order, delay.After(11*366*24*time.Hour))
		s.schedule(c, order, delay.At(time.Time{}))
		s.cancel(c, delay.Ref{})
		s.reschedule(c, ref, delay.When{})
	},
	"batch": func(s *transcript) {
		c := s.client()
		results, err := c.ScheduleBatch(s.t.Context(), []delay.Request{
			{Message: order, When: later},
			{Message: order, When: later},
			{Message: delay.Message{ID: "no topic"}, When: later},
			{Message: delay.Message{Topic: "t"}, When: later},
			{Message: order},
		})
		s.say("%s", answer(err))
		for _, r := range results {
			s.say("%t %s %s", r.Ref.ID != "", r.Status, answer(r.Err))
		}
		s.say("%s", answer(c.Cancel(s.t.Context(), results[3].Ref)))
	},
	"repeat": func(s *transcript) {
		c := s.client()
		_, err := c.Schedule(s.t.Context(), order, later, delay.Repeat(nil))
		s.say("%s", answer(err))
		_, err = c.Schedule(s.t.Context(), order, later, delay.Repeat(context.Canceled))
		s.say("%s", answer(err))
	},
}

// TestConformance plays every scenario on both sides: the answers are the same.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, play := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake, bridge := &transcript{side: newFake(t), t: t}, &transcript{side: newReal(t), t: t}
			play(fake)
			play(bridge)
			require.Equal(t, bridge.lines, fake.lines)
			require.NotContains(t, strings.Join(fake.lines, "\n"), "another error")
		})
	}
}
