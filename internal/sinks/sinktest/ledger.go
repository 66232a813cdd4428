package sinktest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// ample is a deadline that no publish to a healthy broker needs.
	ample = 30 * time.Second
	// margin is how much later than its ctx a call may return on a busy machine. With short it
	// is less than a sink's default publish timeout.
	margin = 5 * time.Second
)

// entry is one message of one call to Publish, as it was handed over, and what
// the sink said about it.
type entry struct {
	call    int
	message message.Message
	outcome sinks.Outcome
}

// ledger records everything that was published through it, so that it can be
// held against what the broker stores.
type ledger struct {
	mu      sync.Mutex
	calls   int
	entries []entry
}

// publish calls Publish under a deadline, checks the form of the answer and
// that it came in time, and records it. It may be called concurrently for
// different keys.
func (l *ledger) publish(t testing.TB, sink sinks.Sink, timeout time.Duration, batch ...message.Message) []sinks.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.publishCtx(t, ctx, sink, batch)
}

//nolint:revive // t before ctx, as everywhere in this package
func (l *ledger) publishCtx(t testing.TB, ctx context.Context, sink sinks.Sink, batch []message.Message) []sinks.Outcome {
	t.Helper()
	kept := make([]message.Message, len(batch))
	for i, m := range batch {
		m.Body = slices.Clone(m.Body)
		kept[i] = m
	}
	began := time.Now()
	outcomes := sinks.Publish(ctx, sink, batch)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(began) {
		assert.Less(t, time.Since(deadline), margin, "Publish must return soon after its deadline")
	}
	// A sink keeps no reference to a body; one that does now stores zeros.
	for _, m := range batch {
		clear(m.Body)
	}
	if !assert.Len(t, outcomes, len(batch), "one outcome a message") {
		return make([]sinks.Outcome, len(batch))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	for i, outcome := range outcomes {
		assert.Equal(t, outcome.Class == sinks.Acknowledged, outcome.Err == nil, "Err is the cause, nil only where acknowledged: %+v", outcome)
		assert.Equal(t, outcome.Class == sinks.Acknowledged, outcome.Reason == "", "Reason is set unless acknowledged: %+v", outcome)
		l.entries = append(l.entries, entry{call: l.calls, message: kept[i], outcome: outcome})
	}
	return outcomes
}

// claim is what the sink said about one message, in all calls that it was in.
type claim struct {
	entry                 // of the first call
	all   []sinks.Outcome // of each call
	// The least and the most copies.
	least, most int
}

// claims are those about the messages of a topic, in the order of their first calls. It is
// called with l.mu held.
func (l *ledger) claims(topic string) (list []*claim) {
	byID := map[string]*claim{}
	for _, e := range l.entries {
		if e.message.Topic != topic {
			continue
		}
		c := byID[e.message.ID]
		if c == nil {
			c = &claim{entry: e}
			byID[e.message.ID], list = c, append(list, c)
		}
		c.all = append(c.all, e.outcome)
		switch e.outcome.Class {
		case sinks.Acknowledged:
			c.least = 1
			if !e.outcome.Duplicate { // else there was one
				c.most++
			}
		case sinks.Unknown:
			c.most++
		case sinks.Retryable:
			if e.outcome.MaybeOut {
				c.most++
			}
		case sinks.Permanent, sinks.Unavailable:
		}
	}
	return list
}

// verify reads the topic and holds it against the ledger: what was acknowledged
// is stored, byte for byte; what the sink said was not handed over or refused
// is not stored; and the messages of a key are in order, without a gap. It returns what
// was never acknowledged, and stored.
func (l *ledger) verify(t testing.TB, broker Broker, topic string) (unasked int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	claims, acknowledged := l.claims(topic), 0
	for _, c := range claims {
		acknowledged += c.least
	}
	var stored []StoredMessage
	var first, copies map[string]int
	for deadline, isWhole := time.Now().Add(ample), false; !isWhole; {
		stored = broker.Read(t, topic, acknowledged)
		first, copies = countCopies(stored)
		// A part of a topic may be readable later than the others, after a restart.
		isMissing := func(c *claim) bool { return copies[c.message.ID] < c.least }
		isWhole = !slices.ContainsFunc(claims, isMissing) || time.Now().After(deadline)
	}
	for _, c := range claims {
		n := copies[c.message.ID]
		if n < c.least || n > c.most {
			t.Fatalf("%d copies of message %s: %+v", n, c.message.ID, c.all)
		}
		if n > 0 {
			verifyContent(t, broker.Features(), &c.message, stored[first[c.message.ID]])
			unasked += 1 - c.least
		}
		delete(copies, c.message.ID)
	}
	require.Empty(t, copies, "stored, but never published to the topic")
	verifyOrder(t, claims, first)
	return unasked
}

// countCopies is how often each message is stored, and where its first copy is.
func countCopies(stored []StoredMessage) (first, copies map[string]int) {
	first, copies = map[string]int{}, map[string]int{}
	for i, s := range stored {
		id := s.Headers[message.HeaderID]
		if copies[id]++; copies[id] == 1 {
			first[id] = i
		}
	}
	return first, copies
}

func verifyContent(t testing.TB, features Features, published *message.Message, stored StoredMessage) {
	t.Helper()
	if len(published.Body) == 0 {
		require.Empty(t, stored.Body)
	} else if !slices.Equal(published.Body, stored.Body) {
		t.Fatalf("the body of %s changed: %d bytes published, %d stored", published.ID, len(published.Body), len(stored.Body))
	}
	want := map[string]string{}
	for _, header := range published.PublishedHeaders() {
		if features.FoldsNames {
			header.Name = strings.ToLower(header.Name)
		}
		want[header.Name] = header.Value
	}
	got := maps.Clone(stored.Headers)
	maps.DeleteFunc(got, func(name, _ string) bool { return slices.Contains(features.ExtraHeaders, name) })
	require.Equal(t, want, got, "headers of %s", published.ID)
	if features.Keyed {
		require.Equal(t, published.Key, stored.Key)
	}
}

// verifyOrder checks the messages of each key: first copies are in the order of
// publishing; and within a call, if one is missing that was not refused by
// itself, no later one is stored: it would overtake.
func verifyOrder(t testing.TB, claims []*claim, first map[string]int) {
	t.Helper()
	type mark struct {
		position, missingIn int
	}
	last := map[string]mark{}
	for _, c := range claims {
		if c.message.Key == "" {
			continue
		}
		before, seen := last[c.message.Key]
		if !seen {
			before.position = -1
		}
		position, isStored := first[c.message.ID]
		switch {
		case isStored:
			require.Greater(t, position, before.position, "order of key %s", c.message.Key)
			require.NotEqual(t, c.call, before.missingIn, "message %s overtook an earlier one of its key", c.message.ID)
			before.position = position
		case c.outcome.Class == sinks.Unknown || c.outcome.Class == sinks.Unavailable:
			before.missingIn = c.call
		}
		last[c.message.Key] = before
	}
}

// newName returns a unique name for a topic, a key or an id.
func newName(prefix string) string {
	return fmt.Sprintf("%s-%016x", prefix, rand.Uint64())
}

// newMessage makes a message with a unique id, and headers and a body that
// brokers like to change.
func newMessage(topic, key string) message.Message {
	id := newName("id")
	return message.Message{
		ID: id, Key: key, Topic: topic,
		Headers: map[string]string{
			"traceparent":  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"content-type": "application/json",
			"X-Mixed-Case": id,
		},
		Body:        bodyOf(id),
		Queue:       "orders",
		DueAt:       time.UnixMilli(1_900_000_000_123).UTC(),
		ScheduledAt: time.UnixMilli(1_800_000_000_000).UTC(),
		Attempt:     1,
		Token:       fmt.Sprintf("%016x", rand.Uint64()),
	}
}

func bodyOf(id string) []byte { return []byte(`{"id":"` + id + `"}`) }

// newBatch makes count messages of one key, in a topic.
func newBatch(topic, key string, count int) []message.Message {
	batch := make([]message.Message, count)
	for i := range batch {
		batch[i] = newMessage(topic, key)
	}
	return batch
}

// randomBody makes a body that nothing compresses.
func randomBody(size int) []byte {
	body := make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		word := rand.Uint64()
		for j := range 8 {
			body[i+j] = byte(word >> (8 * j))
		}
	}
	return body
}

// requireAll fails the test unless all outcomes are of one of the classes.
func requireAll(t testing.TB, outcomes []sinks.Outcome, classes ...sinks.Class) {
	t.Helper()
	for i, outcome := range outcomes {
		require.Contains(t, classes, outcome.Class, "message %d of %d: %s, %s, %v", i, len(outcomes), outcome.Class, outcome.Reason, outcome.Err)
	}
}

// checkAcknowledged is requireAll for goroutines that are not the test's own.
func checkAcknowledged(t testing.TB, outcomes []sinks.Outcome) {
	t.Helper()
	for i, outcome := range outcomes {
		if outcome.Class != sinks.Acknowledged {
			t.Errorf("message %d of %d: %s, %s, %v", i, len(outcomes), outcome.Class, outcome.Reason, outcome.Err)
			return
		}
	}
}

// requireOutcome fails the test unless the outcome is as wanted.
func requireOutcome(t testing.TB, outcome sinks.Outcome, class sinks.Class, reason sinks.Reason) {
	t.Helper()
	require.Equal(t, class.String()+" "+string(reason), outcome.Class.String()+" "+string(outcome.Reason), "cause: %v", outcome.Err)
}

// allBytes is every byte value once.
func allBytes() []byte {
	body := make([]byte, 256)
	for i := range body {
		body[i] = byte(i)
	}
	return body
}
