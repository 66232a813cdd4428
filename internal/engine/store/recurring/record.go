package recurring

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Limits of recurring schedules.
const (
	// Most is how many a queue may have.
	Most = 256
	// MaxTemplate is how many bytes key, topic, headers and body of one may have together.
	MaxTemplate = 64 << 10
	// MostCaughtUp is how many missed firings one may catch up with.
	MostCaughtUp = 100
	// MaxJitter bounds the jitter.
	MaxJitter = time.Hour
	// NameRule says what a name may be.
	NameRule = "1 to 128 letters, digits, dots, dashes and underscores, the first a letter or digit"
)

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckName returns an [*message.InvalidError] if the text cannot be a name.
func CheckName(name string) error {
	if nameRule.MatchString(name) {
		return nil
	}
	return &message.InvalidError{Field: "name", Value: name, Limit: NameRule}
}

// Missed says what becomes of firings that nobody planned in time, since all bridges or Redis were down.
type Missed string

// The policies.
const (
	// Skip leaves them out.
	Skip Missed = "skip"
	// Once fires for the latest of them.
	Once Missed = "once"
	// CatchUp fires for the latest of them, up to [Spec.CatchUp].
	CatchUp Missed = "catch_up"
)

// Spec is what a recurring schedule is to do.
type Spec struct {
	// Cron is an expression, see the timetable, and Zone the IANA time zone whose local time it means; empty: UTC.
	Cron string `json:"cron"`
	Zone string `json:"zone,omitempty"`
	// The template of the messages. Headers have their tags and Late, too.
	Topic   string            `json:"topic"`
	Key     string            `json:"key,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body,omitempty"`
	// Missed is for firings that are a minute late when they are planned. CatchUp is for that policy: 1 to MostCaughtUp.
	Missed  Missed `json:"missed"`
	CatchUp int    `json:"catch_up,omitempty"`
	// Jitter delays each firing by less than that, always by the same.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Until is when the last firing may be; zero: no end.
	Until time.Time `json:"until,omitzero"`
}

// Record is a recurring schedule as Redis stores it.
type Record struct {
	Spec

	Name string `json:"name"`
	// Revision is new each time that the schedule is set, paused or resumed. It names the calls that schedule.
	Revision string `json:"revision"`
	// Call is new with each call that changes the schedule, or leaves it as it is.
	Call string `json:"call,omitempty"`
	// SetAt is when it was set, by Redis' clock: an @every counts from then.
	SetAt time.Time `json:"set_at"`
	// Paused is when it was paused, and By who did that; zero: it is not.
	Paused time.Time `json:"paused,omitzero"`
	By     string    `json:"by,omitempty"`
	// Planned is the latest firing that is decided: all up to it are.
	Planned time.Time `json:"planned"`
	// Scheduled counts the firings that have become messages, Skipped those that were missed and left out.
	Scheduled int64 `json:"scheduled,omitempty"`
	Skipped   int64 `json:"skipped,omitempty"`

	// Pending are firings that are decided and perhaps not scheduled yet, in seconds since 1970, and
	// DecidedAt is when the first of them was.
	Pending   []int64   `json:"pending,omitempty"`
	DecidedAt time.Time `json:"decided_at,omitzero"`
	// Stale are firings of the revision before this one that may wait, and must not come any more.
	Stale *Stale `json:"stale,omitempty"`
	// Spent are firings that came of an earlier revision, though their times are still to be.
	Spent []int64 `json:"spent,omitempty"`
	// IsDeleted is set until they are gone; then the record goes.
	IsDeleted bool `json:"deleted,omitempty"`

	table *timetable
}

// Stale are firings of a revision that has ended.
type Stale struct {
	Revision string  `json:"revision"`
	Key      string  `json:"key,omitempty"`
	Firings  []int64 `json:"firings"`
}

// message returns the firing as a message.
func (r *Record) message(at int64) *message.Message {
	headers := make(map[string]string, len(r.Headers)+1)
	maps.Copy(headers, r.Headers)
	headers[message.HeaderRecurring] = r.Name
	return &message.Message{ID: FiringID(r.Name, at), Key: r.Key, Topic: r.Topic, Headers: headers, Body: r.Body}
}

// dueMs is when the firing is due.
func (r *Record) dueMs(at int64) int64 {
	return at*1000 + message.Spread(r.Key, FiringID(r.Name, at), r.Jitter).Milliseconds()
}

// FiringID is the id of a firing, by its time in seconds since 1970.
func FiringID(name string, at int64) string {
	return name + "@" + time.Unix(at, 0).UTC().Format(time.RFC3339)
}

// callName names the call that schedules a firing, so that it has one effect, whoever makes it.
func callName(revision string, at int64) string {
	return "\x00recurring\x00" + revision + "\x00" + strconv.FormatInt(at, 10)
}

// check fills in what is left out. Its errors are of type [*message.InvalidError].
func (s *Spec) check(name string, sink message.SinkType, now time.Time) error {
	if err := CheckName(name); err != nil {
		return err
	}
	refused := func(field, value, limit string) error {
		return &message.InvalidError{Field: field, Value: value, Limit: limit}
	}
	s.Until = s.Until.UTC().Truncate(time.Millisecond)
	table, err := newTimetable(s.Cron, s.Zone, now, s.Until)
	if err != nil {
		return err
	}
	if _, isSealed := s.Headers[message.HeaderSealed]; isSealed {
		return refused("body", "sealed", "each message is sealed for itself, so a template cannot be")
	}
	if s.Missed == "" {
		s.Missed = Skip
	}
	isCatchUp := s.Missed == CatchUp
	switch gap := table.gap(now); {
	case table.next(now).IsZero():
		return refused("cron", s.Cron, fmt.Sprintf("must fire within %d years, and before until", searchYears))
	case !isCatchUp && s.Missed != Skip && s.Missed != Once:
		return refused("missed", string(s.Missed), "must be skip, once or catch_up")
	case isCatchUp && (s.CatchUp < 1 || s.CatchUp > MostCaughtUp), !isCatchUp && s.CatchUp != 0:
		return refused("catch_up", strconv.Itoa(s.CatchUp), fmt.Sprintf("1 to %d with missed: catch_up, otherwise 0", MostCaughtUp))
	case s.Jitter < 0 || s.Jitter > min(MaxJitter, gap) || s.Jitter%time.Millisecond != 0:
		return refused("jitter", s.Jitter.String(), fmt.Sprintf("whole milliseconds, at most %s and the shortest interval between firings, %s", MaxJitter, gap))
	}
	m := &message.Message{ID: FiringID(name, now.Unix()), Key: s.Key, Topic: s.Topic, Headers: s.Headers, Body: s.Body}
	return m.Validate(sink, MaxTemplate)
}

// equals reports whether the specs ask for the same, by what is stored of them.
func (s *Spec) equals(other *Spec) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// gapsSeen is over how many firings the shortest interval is looked for.
const gapsSeen = 100

// gap is the shortest interval between the firings after an instant.
func (t *timetable) gap(after time.Time) time.Duration {
	least := MaxJitter
	at := t.next(after)
	for range gapsSeen {
		next := t.next(at)
		if at.IsZero() || next.IsZero() {
			break
		}
		least, at = min(least, next.Sub(at)), next
	}
	return least
}

// newRevision begins another revision, which fires from now on.
func (r *Record) newRevision(now time.Time) {
	r.Revision, r.Planned, r.Pending, r.DecidedAt = rand.Text(), now.UTC().Truncate(time.Millisecond), nil, time.Time{}
}

// timetable returns when it fires.
func (r *Record) timetable() (*timetable, error) {
	if r.table == nil {
		table, err := newTimetable(r.Cron, r.Zone, r.SetAt, r.Until)
		if err != nil {
			return nil, err
		}
		r.table = table
	}
	return r.table, nil
}
