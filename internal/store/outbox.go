package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// Outbox messages come from a row of a database, or from a compensation message.
// Their token is made once, together with the row, and begins with rowToken:
// whoever brings the message here, and however often, does it under that token.
//
// So that none of them brings it back after it has ended, its end leaves a
// tombstone under the token: that it was published, cancelled, or goes on under
// another token. A tombstone lives for 60 s, and every writer that can come late
// is bounded by less, counted from an instant before the tombstone was made:
//
//   - The producer's fast path starts to count before its transaction commits,
//     see PutWithin. What ends the token comes after the commit.
//   - A relay or consumer counts from when it has locked the row, by the end of
//     its ctx: at most 30 s, see Put. What ends the token is done under the same
//     lock, so later, or by a bridge or a producer that has found the message, so
//     later than somebody's first Put. Where that was before the lock, an earlier
//     relay died between Redis and its commit: then it is no late writer but the
//     one that repeats, and says so by Marked once a tombstone may have expired.
//   - The second run of a call comes within 30 s of its first.
//
// A reschedule by a row ends the token for the row's next one. The tombstone of
// the old token leads to the new one, whose own comes later and so lives longer.
const (
	rowToken = "~"
	// unledgered tokens are those of messages that no row of a database stands for.
	unledgered = "~~"
)

// errToken is returned for a token that is not that of an outbox message.
var errToken = fmt.Errorf("token of an outbox message must be %d bytes and begin with %q", message.TokenLength, rowToken)

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
	// Marked says that a copy may be out already.
	Marked bool
}

// tokenKind is what follows from a token.
type tokenKind int

const (
	anyKind    tokenKind = iota
	rowKind              // of a row: ends leave a tombstone, and the ledger tells of them
	tracedKind           // ends leave a tombstone
	plainKind
)

func kindOf(token string) tokenKind {
	switch {
	case !strings.HasPrefix(token, rowToken) || len(token) != message.TokenLength:
		return plainKind
	case strings.HasPrefix(token, unledgered):
		return tracedKind
	default:
		return rowKind
	}
}

// IsOutboxToken reports whether the token in force is that of an outbox message.
func IsOutboxToken(token string) bool { return kindOf(token) != plainKind }

// traced are the acknowledged outbox messages of a settlement: all of them, and
// those that the ledger tells of.
type traced struct{ outbox, told int }

func countTraced(s *message.Settlement) (t traced) {
	for i, v := range s.Verdicts {
		if v.Verb != message.VerbAck {
			continue
		}
		switch kindOf(s.Claim.Messages[i].Token) {
		case rowKind:
			t.outbox, t.told = t.outbox+1, t.told+1
		case tracedKind:
			t.outbox++
		case anyKind, plainKind:
		}
	}
	return t
}

// kinds is in which order the script wants the acknowledged messages.
func (t traced) kinds() []tokenKind {
	if t.outbox == 0 {
		return []tokenKind{anyKind}
	}
	return []tokenKind{rowKind, tracedKind, plainKind}
}

// at is an instant for the scripts: rounded up, so that nothing is early.
func at(t time.Time) When {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return When{Ms: ms}
}

// Clock asks Redis for the time.
func (q *Queue) Clock(ctx context.Context) (time.Time, error) {
	if _, err := q.LoadLayout(ctx); err != nil {
		return time.Time{}, err
	}
	return q.Now(), nil
}
