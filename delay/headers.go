package delay

import (
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Names of the headers that every published message has beside its own, on all brokers.
const (
	// HeaderUID names the message: every copy of it has the same, whatever its attempt, even
	// after a reschedule, and each schedule gives a new one. Consumers drop copies by it, not
	// by the ID: an ID may be used again, and its next message would be dropped.
	HeaderUID = message.HeaderUID
	// HeaderID is the message's ID, HeaderQueue the delay queue that it waited in.
	HeaderID    = message.HeaderID
	HeaderQueue = message.HeaderQueue
	// HeaderDueAt is the due time that was in force, HeaderScheduledAt when the message was
	// accepted first: RFC 3339 in UTC with three decimals.
	HeaderDueAt       = message.HeaderDueAt
	HeaderScheduledAt = message.HeaderScheduledAt
	// HeaderAttempt is 1 + how often publishing may have begun before.
	HeaderAttempt = message.HeaderAttempt
)

// Names of the headers that a message has if its producer set the field.
const (
	// HeaderTags are [Message.Tags], HeaderLate is [Message.Late].
	HeaderTags = message.HeaderTags
	HeaderLate = message.HeaderLate
)

// Delivery is what the headers tell a consumer of a published message.
type Delivery struct {
	// UID names the message, see [HeaderUID]: remember it to drop copies.
	UID                string
	ID, Queue          string
	DueAt, ScheduledAt time.Time
	Attempt            int
	Tags               []string
}

// ReadHeaders reads the headers of a published message, which get returns by their names:
// the method Get of NATS' headers and of net/textproto's, or a look into a map. If a bridge
// without delay-uid has published the message, its ID and scheduling time name it, the same in
// all copies of such bridges. The error is [ErrInvalid], for a message that delaybridge has not
// published.
func ReadHeaders(get func(name string) string) (Delivery, error) {
	d := Delivery{UID: get(HeaderUID), ID: get(HeaderID), Queue: get(HeaderQueue)}
	if d.ID == "" {
		return d, invalid("header", HeaderID, "a message that delaybridge has published has it")
	}
	for name, at := range map[string]*time.Time{HeaderDueAt: &d.DueAt, HeaderScheduledAt: &d.ScheduledAt} {
		var err error
		if *at, err = time.Parse(message.TimeFormat, get(name)); err != nil {
			return d, invalid("header", name, "RFC 3339 in UTC with three decimals")
		}
	}
	var err error
	if d.Attempt, err = strconv.Atoi(get(HeaderAttempt)); err != nil {
		return d, invalid("header", HeaderAttempt, "a number")
	}
	if d.UID == "" {
		d.UID = get(HeaderScheduledAt) + " " + d.ID
	}
	if tags := get(HeaderTags); tags != "" {
		d.Tags = strings.Split(tags, ",")
	}
	return d, nil
}
