package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// apiTimeout bounds a question to JetStream's API.
	apiTimeout = 2 * time.Second
	// askersMost is how many questions are under way at once.
	askersMost = 4
)

// questions finds out why a subject had no responders: no stream, or a
// JetStream without a leader. Each subject is asked for once at a time, for all
// messages that wait for the answer, whichever call they belong to. If one
// question gets no answer, those behind it are not asked, so everything is
// answered soon after apiTimeout.
type questions struct {
	mu      sync.Mutex
	waiting map[string][]publication // by subject
	queue   []string                 // subjects that are not asked for yet
	askers  int
}

func newQuestions() questions { return questions{waiting: map[string][]publication{}} }

// explain settles a message that had no responders, later, when the reason is known.
// It does not block, and is called with c.mu held.
func (c *connection) explain(number uint64) {
	w, ok := c.waiting.remove(number)
	if !ok {
		return
	}
	subject := w.submission.batch[w.index].Topic
	q := &c.questions
	q.mu.Lock()
	defer q.mu.Unlock()
	others, asked := q.waiting[subject]
	q.waiting[subject] = append(others, w)
	if asked {
		return
	}
	q.queue = append(q.queue, subject)
	if q.askers < askersMost && c.spawn(c.ask) {
		q.askers++
	}
}

// ask asks for one subject after the other until none is left.
func (c *connection) ask() {
	q := &c.questions
	for {
		subject, ok := q.next()
		if !ok {
			return
		}
		outcome, isAnswer := c.whyNoResponders(subject)
		waiting := q.take(subject)
		if !isAnswer {
			waiting = append(waiting, q.takeQueued()...)
		}
		for _, w := range waiting {
			w.submission.settle(w.index, outcome)
		}
	}
}

// next is the subject to ask for; without one, the asker is counted off.
func (q *questions) next() (subject string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.askers--
		return "", false
	}
	subject, q.queue = q.queue[0], q.queue[1:]
	return subject, true
}

func (q *questions) take(subject string) []publication {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.waiting[subject]
	delete(q.waiting, subject)
	return waiting
}

// takeQueued takes those whose subjects are not asked for yet.
func (q *questions) takeQueued() []publication {
	q.mu.Lock()
	defer q.mu.Unlock()
	var waiting []publication
	for _, subject := range q.queue {
		waiting = append(waiting, q.waiting[subject]...)
		delete(q.waiting, subject)
	}
	q.queue = nil
	return waiting
}

// whyNoResponders asks JetStream. isAnswer is false if it said nothing.
func (c *connection) whyNoResponders(subject string) (outcome sinks.Outcome, isAnswer bool) {
	ctx, cancel := context.WithTimeout(c.root, apiTimeout)
	defer cancel()
	switch err := c.streamExists(ctx, subject); {
	case err == nil:
		return classify(fmt.Errorf("subject %s: stream has no leader: %w", subject, errNoResponders)), true
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return classify(fmt.Errorf("subject %s: %w", subject, err)), true
	default:
		return classify(fmt.Errorf("subject %s: %w", subject, errNoResponders)), false
	}
}

// streamExists asks JetStream whether any stream binds the subject.
func (c *connection) streamExists(ctx context.Context, subject string) error {
	if c.denied.api.Load() {
		return jetstream.ErrStreamNotFound // the likelier cause by far
	}
	_, err := c.js.StreamNameBySubject(ctx, subject)
	if err != nil && c.denied.api.Load() {
		return jetstream.ErrStreamNotFound
	}
	return err
}
