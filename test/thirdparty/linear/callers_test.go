package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// history is what was done about an id, and what came of it. It is safe for concurrent use.
type history struct {
	ref delay.Ref

	mu    sync.Mutex
	calls []call
	lives uint8
}

func (h *history) add(calls ...call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, calls...)
}

func (h *history) newLife() uint8 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives++
	return h.lives
}

// got takes what the broker has stored: it was claimed between its due time and then, and
// settled after that.
func (h *history) got(r trial.Record) {
	life, _ := strconv.Atoi(string(r.Body))
	due, _ := time.Parse(time.RFC3339Nano, r.Headers["delay-due-at"])
	attempt, _ := strconv.Atoi(r.Headers["delay-attempt"])
	h.mu.Lock()
	defer h.mu.Unlock()
	c := call{verb: claim, answer: done, attempt: attempt, life: uint8(life), due: due.UnixMilli(), who: callers + len(h.calls), from: due, to: r.At} //nolint:gosec // few lives
	h.calls = append(h.calls, c)
	c.verb, c.from, c.to = settle, r.At, lastInstant
	h.calls = append(h.calls, c)
}

const (
	callers  = 3
	callsOf  = 6
	longest  = callers * callsOf
	mostRuns = 4
)

// caller is one of those that work on an id.
type caller struct {
	who    int
	pause  int           // ms between calls, at most
	slow   time.Duration // a call that took less was one run
	client *delay.Client
	topic  string
	of     *history
	random *rand.Rand
	tally  *tally
}

// run makes all its calls, at any time.
func (c *caller) run(ctx context.Context) error {
	for range callsOf {
		if err := trial.Sleep(ctx, time.Duration(c.random.IntN(c.pause))*time.Millisecond); err != nil {
			return err
		}
		if err := c.call(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *caller) call(ctx context.Context) error {
	verbs := [...]verb{schedule, schedule, schedule, keep, replace, replace, replace, cancel, cancel, cancel, reschedule, reschedule, reschedule, reschedule, get, get, get}
	v := verbs[c.random.IntN(len(verbs))]
	if v == get {
		return c.look(ctx)
	}
	lead := time.Duration(c.random.IntN(500)-30) * time.Millisecond
	if c.random.IntN(8) == 0 {
		lead += time.Second
	}
	made := call{verb: v, who: c.who, due: time.Now().Add(lead).UnixMilli()}
	if v <= replace {
		made.life = c.of.newLife()
	}
	isPatient := c.random.IntN(2) == 0
	first := time.Now()
	var err error
	for n := 1; ; n++ {
		made.from = time.Now()
		made.answer, made.isSure, err = c.change(ctx, &made, err)
		made.to = time.Now()
		isLast := made.answer != unknown || !isPatient || n == mostRuns
		if v <= replace {
			c.note(made)
		} else if isLast { // The repetitions are the same call, which has one effect.
			made.from = first
			c.of.add(made)
		}
		if n == 1 || isLast {
			c.tally.count(made.answer, n > 1)
		}
		if isLast {
			break
		}
		made.isAgain = true
	}
	if made.answer == refused && !errors.Is(err, delay.ErrUnavailable) {
		return fmt.Errorf("%s of %v: %w", v, c.of.ref, err)
	}
	return nil
}

// note notes a schedule. One that took long may have had several runs: the message of the one before may have been
// published, and then the next creates it again.
func (c *caller) note(made call) {
	for took := made.to.Sub(made.from); took > c.slow && made.answer != refused; took -= c.slow {
		run := made
		run.answer = unknown
		c.of.add(run)
		made.isAgain = true
	}
	c.of.add(made)
}

// change makes a call that changes something.
func (c *caller) change(ctx context.Context, made *call, earlier error) (answer, bool, error) {
	var (
		err    error
		result delay.Result
		at     = delay.At(time.UnixMilli(made.due))
		repeat = delay.Repeat(earlier)
	)
	switch made.verb {
	case cancel:
		err = c.client.Cancel(ctx, c.of.ref, repeat)
	case reschedule:
		err = c.client.Reschedule(ctx, c.of.ref, at, repeat)
	default:
		policy := map[verb]delay.Conflict{schedule: delay.Reject, keep: delay.Keep, replace: delay.Replace}[made.verb]
		m := delay.Message{ID: c.of.ref.ID, Key: c.of.ref.Key, Topic: c.topic, Body: []byte(strconv.Itoa(int(made.life)))}
		results, _ := c.client.ScheduleBatch(ctx, []delay.Request{{Message: m, When: at, Conflict: policy, Repeat: earlier}})
		result, err = results[0], results[0].Err
	}
	isSure := !errors.Is(err, delay.ErrNotDurable)
	switch {
	case errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrForgotten):
		return unknown, false, err
	case errors.Is(err, delay.ErrTooLate):
		return tooLate, isSure, err
	case errors.Is(err, delay.ErrNotFound):
		return notFound, isSure, err
	case errors.Is(err, delay.ErrDuplicate), result.Status == delay.Existing:
		return existing, isSure, err
	case errors.Is(err, delay.ErrMaybePublished):
		return maybe, isSure, err
	case delay.Done(err):
		return done, isSure, err
	default:
		return refused, false, err
	}
}

// look gets the message.
func (c *caller) look(ctx context.Context) error {
	made := call{verb: get, who: c.who, from: time.Now()}
	info, err := c.client.Get(ctx, c.of.ref)
	made.to = time.Now()
	switch {
	case errors.Is(err, delay.ErrNotFound):
		made.answer = notFound
	case errors.Is(err, delay.ErrUnavailable):
		made.answer = refused
	case err != nil:
		return fmt.Errorf("get %v: %w", c.of.ref, err)
	default:
		made.answer = map[delay.State]answer{delay.Scheduled: waits, delay.InFlight: flies, delay.Published: notFound, delay.Cancelled: notFound}[info.State]
		life, _ := strconv.Atoi(string(info.Body))
		made.life = uint8(life) //nolint:gosec // few lives
		if made.answer != notFound {
			made.due = info.DueAt.UnixMilli()
		}
		if e := info.End; e != nil {
			made.end = end{isPublished: e.State == delay.Published, isCancelled: e.State == delay.Cancelled, due: e.DueAt.UnixMilli()}
		}
	}
	c.of.add(made)
	c.tally.count(made.answer, false)
	return nil
}

// tally counts answers. It is safe for concurrent use.
type tally struct {
	mu       sync.Mutex
	calls    int
	answers  map[string]int
	repeated int
}

func (t *tally) count(a answer, isRepetition bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if isRepetition {
		t.repeated++
		t.answers["repeated: "+a.String()]++
		return
	}
	t.calls++
	t.answers[a.String()]++
}

func (t *tally) made() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}
