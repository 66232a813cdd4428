package delaytest

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

// Published is a message as a consumer gets it.
type Published struct {
	ID, Key, Topic string
	Body           []byte
	// Headers are the message's own and those that the bridge adds, such as delay-id.
	Headers map[string]string
	// DueAt is when it was due, At when it was published.
	DueAt, At time.Time
}

// Ref is the message's identity.
func (p Published) Ref() delay.Ref { return delay.Ref{ID: p.ID, Key: p.Key} }

// Advance moves the clock forward by d. Every message that becomes due is published
// at its due time, in due order, and returned. 0 publishes what is due now.
func (q *Queue) Advance(d time.Duration) []Published {
	q.t.Helper()
	end := q.Now().Add(d).Truncate(time.Millisecond)
	if d < 0 {
		q.t.Fatalf("delaytest: advance by %v: time does not run backwards", d)
	}
	before := len(q.Published())
	for q.next(end) {
	}
	q.clock.set(end)
	return q.Published()[before:]
}

// next moves the clock to the next message that is due by end and settles it. It
// returns false if there is none.
func (q *Queue) next(end time.Time) bool {
	for {
		q.bridge.mu.Lock()
		if q.bridge.paused {
			q.bridge.mu.Unlock()
			return false
		}
		q.bridge.claims++
		token := message.ClaimToken{Instance: "delaytest", Number: q.bridge.claims}
		q.bridge.mu.Unlock()
		claim, err := q.store.Shard(0).Claim(q.ctx(), message.ClaimRequest{
			Token: token, Max: 1, Timeout: time.Minute, Lease: time.Minute,
		})
		q.must("claim", err)
		if len(claim.Messages) > 0 {
			q.settle(claim)
			return true
		}
		if claim.NextDue.IsZero() || claim.NextDue.After(end) {
			return false
		}
		q.clock.set(claim.NextDue)
	}
}

// settle publishes the one message of the claim, unless it is too late or refused.
func (q *Queue) settle(claim message.Claim) {
	m := &claim.Messages[0]
	q.must("read message "+m.ID, m.Err)
	verdict, isLate := m.LateOr(message.Late{}).Judge(m, claim.Now)
	if !isLate {
		verdict = q.publish(m, claim.Now)
	}
	_, err := q.store.Shard(0).Settle(q.ctx(), message.Settlement{Claim: claim, Verdicts: []message.Verdict{verdict}})
	q.must("settle", err)
}

func (q *Queue) publish(m *message.ClaimedMessage, now time.Time) message.Verdict {
	q.must("open message "+m.ID, seal.Open(q.bridge.keys, &m.Message))
	q.bridge.mu.Lock()
	reason, isRefused := q.bridge.refused[m.Topic]
	if isRefused {
		q.bridge.mu.Unlock()
		return message.Verdict{
			Verb: message.VerbDeadLetter, Reason: reason,
			Attempts: message.Attempts{Failures: m.Attempts.Failures + 1, Begun: m.Attempts.Begun + 1},
		}
	}
	p := Published{
		ID: m.ID, Key: m.Key, Topic: m.Topic, Body: m.Body, Headers: map[string]string{}, DueAt: m.DueAt, At: now,
	}
	for _, h := range m.PublishedHeaders() {
		p.Headers[h.Name] = h.Value
	}
	q.bridge.published = append(q.bridge.published, p)
	handle := q.bridge.handlers[m.Topic]
	q.bridge.mu.Unlock()
	if handle != nil {
		handle(p)
	}
	return message.Verdict{Verb: message.VerbAck, Published: true}
}

// Handle calls consume for each message that is published to the topic, in the
// goroutine that calls [Queue.Advance]. consume plays the consumer, and may schedule
// more messages. Until it returns, its message is in flight, so a cancel answers
// [delay.ErrTooLate].
func (q *Queue) Handle(topic string, consume func(Published)) {
	q.bridge.mu.Lock()
	defer q.bridge.mu.Unlock()
	q.bridge.handlers[topic] = consume
}

// Refuse makes the broker refuse all messages to the topic from now on: when they are
// due, they go to the dead letters with that reason.
func (q *Queue) Refuse(topic, reason string) {
	q.bridge.mu.Lock()
	defer q.bridge.mu.Unlock()
	q.bridge.refused[topic] = reason
}

// Pause stops publishing, as an outage does, while the clock may go on. After
// [Queue.Resume], the next Advance publishes what has become due, or does what the
// messages' Late says. Calling either twice is harmless.
func (q *Queue) Pause() { q.setPaused(true) }

// Resume ends a Pause.
func (q *Queue) Resume() { q.setPaused(false) }

func (q *Queue) setPaused(paused bool) {
	q.bridge.mu.Lock()
	defer q.bridge.mu.Unlock()
	q.bridge.paused = paused
}

// Published returns the messages published so far, in order, to these topics, or to
// all if none is given.
func (q *Queue) Published(topics ...string) []Published {
	q.bridge.mu.Lock()
	defer q.bridge.mu.Unlock()
	var found []Published
	for _, p := range q.bridge.published {
		if len(topics) == 0 || slices.Contains(topics, p.Topic) {
			found = append(found, p)
		}
	}
	return found
}
