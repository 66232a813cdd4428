package delay

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Names of the headers that every published message has besides its own, on all brokers. One of a queue with
// `headers: minimal` has only HeaderUID and HeaderDueAt, and HeaderAttempt where it is more than 1.
const (
	// HeaderUID identifies the message: all copies of it have the same value, whatever the attempt
	// and even after a reschedule, and each schedule makes a new one. Consumers deduplicate by it
	// and not by the ID, because an ID may be used again and its next message would be dropped.
	HeaderUID = message.HeaderUID
	// HeaderID is the message's ID, HeaderQueue the queue in which it waited.
	HeaderID    = message.HeaderID
	HeaderQueue = message.HeaderQueue
	// HeaderDueAt is the due time in force when it was published, HeaderScheduledAt the
	// time at which the message was first accepted: RFC 3339 in UTC with three decimals.
	HeaderDueAt       = message.HeaderDueAt
	HeaderScheduledAt = message.HeaderScheduledAt
	// HeaderAttempt is 1 plus the number of earlier attempts that may have begun publishing.
	HeaderAttempt = message.HeaderAttempt
)

// Names of the headers that a message has if its producer set the field, or it is a firing.
const (
	// HeaderTags are [Message.Tags], HeaderLate is [Message.Late].
	HeaderTags = message.HeaderTags
	HeaderLate = message.HeaderLate
	// HeaderFirstAt is when the first of the messages was accepted that have replaced one another
	// with a [When.MaxWait], in the form of HeaderDueAt.
	HeaderFirstAt = message.HeaderFirstAt
	// HeaderRecurring is the name of the [Recurring] of which the message is a firing.
	HeaderRecurring = message.HeaderRecurring
)

// Delivery is what the headers tell a consumer of a published message.
type Delivery struct {
	// UID identifies the message, see [HeaderUID]: remember it to drop copies.
	UID string
	// ID, Queue and ScheduledAt are zero where the queue has `headers: minimal`.
	ID, Queue          string
	DueAt, ScheduledAt time.Time
	Attempt            int
	Tags               []string
}

// ReadHeaders reads the headers of a published message. get returns a header by its name: the
// method Get of NATS' headers and of net/textproto's, or a lookup in a map. If the bridge was
// too old to set delay-uid, the UID is made of ID and scheduling time, which is the same in all
// copies from such bridges. The error is [ErrInvalid], for a message that delaybridge has not
// published.
func ReadHeaders(get func(name string) string) (Delivery, error) {
	d := Delivery{UID: get(HeaderUID), ID: get(HeaderID), Queue: get(HeaderQueue)}
	if d.UID == "" && d.ID == "" {
		return d, invalid("header", HeaderUID, "a message that delaybridge has published has it")
	}
	times, attempt := map[string]*time.Time{HeaderDueAt: &d.DueAt}, get(HeaderAttempt)
	if isMinimal := d.ID == ""; isMinimal {
		attempt = cmp.Or(attempt, "1")
	} else {
		times[HeaderScheduledAt] = &d.ScheduledAt
	}
	var err error
	for name, at := range times {
		if *at, err = time.Parse(message.TimeFormat, get(name)); err != nil {
			return d, invalid("header", name, "RFC 3339 in UTC with three decimals")
		}
	}
	if d.Attempt, err = strconv.Atoi(attempt); err != nil {
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
