package message

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EndKind is the way in which a message ended.
type EndKind byte

// The kinds of ends, as they are stored.
const (
	EndPublished EndKind = 'p'
	EndCancelled EndKind = 'c'
	EndDropped   EndKind = 'x'
	// EndDead: it went to the dead letters, and may live again.
	EndDead   EndKind = 'd'
	EndPurged EndKind = 'u'
)

// String is the kind for display.
func (k EndKind) String() string {
	switch k {
	case EndPublished:
		return "published"
	case EndCancelled:
		return "cancelled"
	case EndDropped:
		return "dropped"
	case EndDead:
		return "dead"
	case EndPurged:
		return "purged"
	default:
		return "unknown"
	}
}

// End says how a message ended, in its queue's history.
type End struct {
	Kind EndKind
	// At is when, by Redis' clock.
	At time.Time
	// DueAt is the due time that was in force; zero if it was not known.
	DueAt time.Time
	Topic string
	// Attempt is the number of the attempt that ended it, or that would have come next.
	Attempt int
	// Detail is where the broker has stored a published message, if it told, and
	// otherwise why the message ended so. It is often empty.
	Detail string
}

// String is the stored form of the end, without At. The scripts make the same
// form, see shared/ends.lua.
func (e *End) String() string {
	b := make([]byte, 0, 32+len(e.Topic)+len(e.Detail))
	b = append(b, byte(e.Kind))
	if !e.DueAt.IsZero() {
		b = strconv.AppendInt(b, e.DueAt.UnixMilli(), 10)
	}
	b = strconv.AppendInt(append(b, ' '), int64(e.Attempt), 10)
	b = strconv.AppendInt(append(b, ' '), int64(len(e.Topic)), 10)
	b = append(append(b, ':'), e.Topic...)
	return string(append(b, e.Detail...))
}

// ParseEnd is the inverse of [End.String].
func ParseEnd(stored string, at time.Time) (End, error) {
	head, rest, found := strings.Cut(stored, ":")
	due, counts, _ := strings.Cut(head, " ")
	attempt, length, _ := strings.Cut(counts, " ")
	e := End{At: at}
	n, errLength := strconv.Atoi(length)
	a, errAttempt := strconv.Atoi(attempt)
	if !found || due == "" || errLength != nil || errAttempt != nil || n < 0 || n > len(rest) {
		return e, fmt.Errorf("%w: end %q", ErrUndecodable, head)
	}
	e.Kind, e.Attempt, e.Topic, e.Detail = EndKind(due[0]), a, rest[:n], rest[n:]
	if due = due[1:]; due != "" {
		ms, err := strconv.ParseInt(due, 10, 64)
		if err != nil {
			return e, fmt.Errorf("%w: end %q", ErrUndecodable, head)
		}
		e.DueAt = time.UnixMilli(ms)
	}
	return e, nil
}
