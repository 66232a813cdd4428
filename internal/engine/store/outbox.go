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
// [message.OutboxMark]: whoever brings the message here, and however often, does
// it under that token.
//
// So that none of them brings it back after it has ended, its end leaves a
// tombstone under the token: that it was published, cancelled, or goes on under
// another token. A tombstone lives for 60 s, which is longer than a late writer
// may take:
//
//   - The producer's fast path counts from before its transaction commits, see
//     PutWithin. Whatever ends the token comes after the commit.
//   - A relay or consumer counts from when it has locked the row, see Put: at most
//     30 s and one timeout. What ends the token after that instant leaves a
//     tombstone that lives longer. What ended it before was the end of what an
//     earlier writer had brought, a minute ago at the most; for a row that was
//     ready to be brought earlier than that, the caller sets a Mark.
//   - The further runs of a call come within 30 s of its first.
//
// A reschedule by a row ends the token for the row's next one: all late writers
// under the old token have begun before it, and so end within its tombstone's
// life. That leads to the next token, and the tombstone there is made later and
// lives longer still. Where a row is cancelled or rescheduled before its message
// is here, the same tombstones are left for the fast path.
//
// A message without a row has no such bound: a broker may deliver its compensation
// again for as long as that is valid. So its tombstone is left when the message is
// brought here, see Row.Until: the message itself is looked for first, and where it
// is not here it has ended. Its end says how, and never shortens the tombstone's life.

// errToken is returned for a token that is not that of an outbox message.
var errToken = fmt.Errorf("token of an outbox message must be %d bytes and begin with %q", message.TokenLength, message.OutboxMark)

// errDeadline is the cause where the call came after its deadline.
var errDeadline = errors.New("deadline of the call has passed")

// Row is an outbox message as it is brought to Redis.
type Row struct {
	// Token is the one in force for the row: 16 bytes that begin with '~'. One
	// that begins with "~~" is that of no row: the ledger does not tell of it.
	Token   string
	Message *message.Message
	// DueAt is rounded up to whole milliseconds.
	DueAt time.Time
	// Mark says when the message is marked maybe published, if it is created.
	Mark Mark
	// Made is when the row was made at the earliest, by Redis' clock; for
	// MarkDueIfOlder.
	Made time.Time
	// Until is when the last one may bring the message that has no row; zero for a
	// row's. Until then its token is not brought here a second time.
	Until time.Time
	// Before is the token of the message whose place it takes, for [Rows.Renew].
	Before string
}

// untilMs is how long the tombstone lives that putting the row leaves: a minute
// longer than the row may come, for a run that is late, and for the clock of a
// server that takes over.
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
	// MarkAlways is for one of which a copy may be out.
	MarkAlways
	// MarkDue marks a message that is due by now, or within two seconds: the
	// clock of a node that took over may be behind that of the one that claimed it.
	MarkDue
	// MarkDueIfOlder is MarkDue where the row is older than what the shard has, see
	// [Rows.Born]: Redis may have lost the message, and that it was published. Where
	// it is not known since when the shard has it, the row is not older.
	MarkDueIfOlder
)

// MarkIf is MarkAlways where a copy may be out, else MarkNever.
func MarkIf(copyOut bool) Mark {
	if copyOut {
		return MarkAlways
	}
	return MarkNever
}

// mark is the row's Mark as put.lua takes it.
func (r *Row) mark() string {
	switch r.Mark {
	case MarkAlways:
		return "1"
	case MarkDue:
		return "due"
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
