package delay

import (
	"fmt"
	"math"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Message is what a producer schedules. ID, Key, Topic, Headers and Body may
// have 960 KiB together, see [WithMaxSize].
type Message struct {
	// ID names the message within its Key: 1 to 255 bytes of UTF-8 without
	// control characters and outer spaces. Empty means a new ULID.
	ID string
	// Key groups messages that are published in due order: 0 to 255 bytes, as ID.
	// On Kafka it is the record's key.
	Key string
	// Topic is where the message is published: a Kafka topic, a RabbitMQ routing
	// key, a NATS subject.
	Topic string
	// Headers pass through unchanged: at most 64. Names are printable ASCII without
	// colon and space; delay-*, nats-*, CC and BCC are reserved. Values are UTF-8
	// without outer spaces and without control characters, except inner tabs.
	Headers map[string]string
	// Body is published byte for byte.
	Body []byte
	// Tags group messages, so that operators can find and change them together: at most
	// 8, each 1 to 64 bytes of printable UTF-8 without spaces and commas. Consumers get
	// them as the header delay-tags, sorted, without repetitions, and joined by commas.
	Tags []string
	// Late says how late the message may be published, and what happens to it after that;
	// zero means the queue's configuration. Consumers get it as the header delay-late.
	Late Late
}

// Ref is a message's identity.
type Ref struct {
	ID, Key string
}

// Status says what a schedule did.
type Status string

// What a schedule did.
const (
	// Created: a new message waits.
	Created Status = "created"
	// Replaced: the message took the place of another one, and waits.
	Replaced Status = "replaced"
	// Existing: a message of that identity existed already and was not changed.
	Existing Status = "existing"
)

// Result is the answer to a schedule.
type Result struct {
	// Ref is the message's identity. It is set even if there is an error.
	Ref Ref
	// DueAt is the due time of the message that waits, by Redis' clock; zero
	// if it is not known.
	DueAt time.Time
	// Status is what happened; empty if nothing did.
	Status Status
	// Err is the item's error in a batch, and the call's error otherwise. An
	// [ErrUnknown] holds what [Repeat] needs.
	Err error
}

// Request is one item of a batch.
type Request struct {
	Message Message
	When    When
	// Conflict is the policy for this message; zero is the client's.
	Conflict Conflict
	// Repeat is the Err that an earlier batch returned for the same message, see
	// [Repeat]; nil for a new call.
	Repeat error
}

// When is a due time, made by [After] or [At]. The zero value is no due time, and is
// answered with [ErrInvalid].
type When struct {
	kind    whenKind
	after   time.Duration
	at      time.Time
	spread  time.Duration
	maxWait time.Duration
}

type whenKind int

const (
	never whenKind = iota
	isAfter
	isAt
)

// After is a due time counted from the moment at which Redis accepts the
// message; 0 or less publishes at once. The limit is 10 years.
func After(d time.Duration) When { return When{kind: isAfter, after: d} }

// At is a due time at an instant, from 1970 to 10 years from now; an instant in
// the past publishes at once. It is rounded up to whole milliseconds.
func At(t time.Time) When { return When{kind: isAt, at: t} }

// Spread delays the due time by 0 up to over (exclusive), in whole milliseconds, so that a
// wave of messages that would be due at once is spread evenly. The share is a hash of the
// message's identity, so it is the same every time; a message without an ID is spread by the
// one that it gets. An over of 0 or less adds nothing.
func (w When) Spread(over time.Duration) When {
	w.spread = over
	return w
}

// MaxWait debounces: each schedule with [After] and [Replace] puts the message off once more, but its
// due time is at most d after the first one; consumers get the first one's time as [HeaderFirstAt].
// Once the message is published, cancelled, or replaced without a MaxWait, the next schedule is the
// first one again. While it is in flight, Schedule waits for its end, so what a call reports is never
// lost; it answers [ErrTooLate] if that takes longer than [WithTimeout], or if the call is a [Repeat]
// or has a name ([Once]). [ErrInvalid] if d is less than the delay, or for any other due time or
// policy. A d of 0 is no bound.
func (w When) MaxWait(d time.Duration) When {
	w.maxWait = d
	return w
}

// For returns the due time for the message of that identity, with the share of Spread added.
func (w When) For(ref Ref) When {
	part := message.Spread(ref.Key, ref.ID, w.spread)
	if w.kind == isAt {
		w.at = w.at.Add(part)
	} else {
		w.after = max(w.after, 0)
		w.after += min(part, math.MaxInt64-w.after) // A sum that wraps around would be in the past: due at once.
	}
	w.spread = 0
	return w
}

// Instant returns the instant given to [At], and false if [After] made the due
// time.
func (w When) Instant() (time.Time, bool) { return w.at, w.kind == isAt }

// Delay returns the duration given to [After], and 0 if [At] made the due time.
func (w When) Delay() time.Duration { return w.after }

// Check returns [ErrInvalid] for the zero value and for a [When.MaxWait], which only [Client.Schedule]
// takes, and nil otherwise.
func (w When) Check() error {
	if w.kind == never {
		return invalid("due", "", "none was given: use After or At")
	}
	if w.maxWait != 0 {
		return invalid("max_wait", w.maxWait.String(), "only a schedule with the policy Replace may have one")
	}
	return nil
}

// maxDelay is how far away a due time may be.
const maxDelay = message.MaxDelayYears * 366 * 24 * time.Hour

// replacing is resolve for a message of that identity that may replace others. What Spread adds may be cut off
// by the bound, so that no identity is refused where another is not.
func (w When) replacing(ref Ref, now time.Time) (store.When, error) {
	bound, least := w.maxWait, max(w.after, 0)
	w.maxWait = 0
	when, err := w.For(ref).resolve(now)
	switch {
	case err != nil || bound == 0:
	case w.kind != isAfter:
		err = invalid("max_wait", bound.String(), "only a delay has one, not an instant")
	case bound < least || bound > maxDelay:
		err = invalid("max_wait", bound.String(), fmt.Sprintf("from the delay, %s, to %d years", least, message.MaxDelayYears))
	default:
		when.MaxWait = ceilMs(bound)
	}
	return when, err
}

// ceilMs rounds up to whole milliseconds.
func ceilMs(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// resolve checks the due time and rounds it up to milliseconds.
func (w When) resolve(now time.Time) (store.When, error) {
	if err := w.Check(); err != nil {
		return store.When{}, err
	}
	if w.kind == isAfter {
		if w.after > maxDelay {
			return store.When{}, invalid("due", "after "+w.after.String(), fmt.Sprintf("at most %d years", message.MaxDelayYears))
		}
		return store.When{Relative: true, Ms: ceilMs(max(w.after, 0))}, nil
	}
	if w.at.Before(time.UnixMilli(0)) || w.at.After(now.Add(maxDelay)) {
		return store.When{}, invalid("due", "at "+w.at.Format(time.RFC3339),
			fmt.Sprintf("from 1970 to %d years from now", message.MaxDelayYears))
	}
	ms := w.at.UnixMilli()
	if time.UnixMilli(ms).Before(w.at) {
		ms++
	}
	return store.When{Ms: ms}, nil
}
