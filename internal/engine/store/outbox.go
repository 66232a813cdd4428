package store

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Outbox messages come from a row of a database, or from a compensation message.
// Their token is made once, together with the row, and begins with
// [message.OutboxMark]. Every writer brings the message here under that token,
// however often.
//
// So that no writer brings it back after it has ended, its end leaves a
// tombstone under the token: published, cancelled, or continued under another
// token. A tombstone lives for 60 s, which is longer than a late writer may
// take:
//
//   - The producer's fast path counts from before its transaction commits, see
//     PutWithin. Whatever ends the token comes after the commit.
//   - A relay or consumer counts from when it has locked the row, see Put: at most
//     30 s and one timeout. If the token ends after that instant, the tombstone
//     lives longer. If it ended before, an earlier writer had brought the message,
//     at most a minute ago; for a row that could have been brought earlier than
//     that, the caller sets a Mark.
//   - The further runs of a call come within 30 s of its first.
//
// A reschedule by a row ends the token for the row's next one: all late writers
// under the old token have begun before it, and so end within its tombstone's
// life. That leads to the next token, and the tombstone there is made later and
// lives longer still. If a row is cancelled or rescheduled before its message is
// here, the same tombstones stop the fast path.
//
// A message without a row has no such bound: a broker may deliver its compensation again for
// as long as that is valid. So its tombstone is left when the message is brought here, see
// Row.Until. The scripts look for the message first; if it is not here but the tombstone is,
// it has ended. Its end records how, and never shortens the tombstone's life.

// errToken is returned for a token that is not that of an outbox message.
var errToken = fmt.Errorf("token of an outbox message must be %d bytes and begin with %q", message.TokenLength, message.OutboxMark)

// errDeadline is the cause if the call came after its deadline.
var errDeadline = errors.New("deadline of the call has passed")

// Row is an outbox message as it is brought to Redis.
type Row struct {
	// Token is the row's token in force: 16 bytes that begin with '~'. A token that
	// begins with "~~" belongs to no row, and the ledger gets no entry for it.
	Token   string
	Message *message.Message
	// DueAt is rounded up to whole milliseconds.
	DueAt time.Time
	// Mark says when the message is marked maybe published, if it is created.
	Mark Mark
	// Made is the earliest time at which the row can have been made, by Redis'
	// clock; for MarkDueIfOlder.
	Made time.Time
	// Until is for a message without a row: until then its compensation may be
	// delivered, and its token is not accepted a second time. Zero for a row's message.
	Until time.Time
	// Before is the token of the message that it replaces, for [Rows.Renew].
	Before string
}

// untilMs is how long the tombstone of a put lives: a minute longer than the
// row may come, for late runs and for the clock of a server that takes over.
func (r *Row) untilMs() string {
	if r.Until.IsZero() {
		return ""
	}
	return strconv.FormatInt(r.Until.Add(Tombstone).UnixMilli(), 10)
}

// Mark is when a message that [Rows.Put] creates is marked maybe published. The
// script decides, by the clock and the memory of the shard that it runs in.
type Mark int

const (
	// MarkNever is for a message of which no copy can be out.
	MarkNever Mark = iota
	// MarkAlways is for a message of which a copy may be out.
	MarkAlways
	// MarkDue marks a message that is due by now, or within two seconds, because the
	// clock of a node that took over may be behind that of the node that claimed it.
	MarkDue
	// MarkDueIfOlder is MarkDue if the row is older than its shard, or than one that was
	// its home in an earlier layout, see [Rows.Born]: Redis may have lost the message after
	// it was published. Of a shard whose age is not known, the row does not count as older.
	MarkDueIfOlder
)

// MarkIf returns MarkAlways if a copy may be out, else MarkNever.
func MarkIf(copyOut bool) Mark {
	if copyOut {
		return MarkAlways
	}
	return MarkNever
}

// markDue is [MarkDue] as put.lua takes it. It takes the place of [MarkDueIfOlder] where a home of an earlier layout
// is younger than the row, because Redis may have lost the message there.
const markDue = "due"

// mark is the row's Mark as put.lua takes it.
func (r *Row) mark() string {
	switch r.Mark {
	case MarkAlways:
		return "1"
	case MarkDue:
		return markDue
	case MarkDueIfOlder:
		return strconv.FormatInt(r.Made.UnixMilli(), 10)
	case MarkNever:
	}
	return "0"
}

// at is an instant for the scripts: rounded up, so that nothing is early.
func at(t time.Time) When {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return When{Ms: ms}
}
