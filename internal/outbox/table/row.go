package table

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/ijson"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Verb is what a row asks for.
type Verb int16

// The verbs, as in the column op.
const (
	VerbSchedule   Verb = 0
	VerbCancel     Verb = 1
	VerbReschedule Verb = 2
	// VerbReplace is a message that replaces its target, or any live message if it has none. It
	// is an operation until then, and a schedule afterwards.
	VerbReplace Verb = 3
)

func (v Verb) String() string {
	switch v {
	case VerbSchedule:
		return "schedule"
	case VerbCancel:
		return "cancel"
	case VerbReschedule:
		return "reschedule"
	case VerbReplace:
		return "replace"
	default:
		return "unknown"
	}
}

// State is a row's status.
type State int16

// The states, as in the column status.
const (
	StatePending    State = 0
	StateStored     State = 1
	StatePublished  State = 2
	StateCancelled  State = 3
	StateTooLate    State = 4
	StateUnknown    State = 5
	StateRefused    State = 6
	StateSuperseded State = 7
)

var stateNames = [...]string{"pending", "stored", "published", "cancelled", "too_late", "unknown", "refused", "superseded"}

func (s State) String() string {
	if s >= 0 && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// Identity identifies a message: at most one of its rows with verb schedule is live.
type Identity struct {
	Queue, Key, ID string
}

// Row is one row of the table.
type Row struct {
	Identity
	Number    int64 // the column id: the revision
	Verb      Verb
	State     State
	Maybe     bool // a copy may be out, as a reschedule has learned
	Token     string
	UID       string // the first token, if a reschedule has taken it; else empty
	Target    sql.NullInt64
	Revision  int64 // of a message: the last reschedule that was applied
	DueMs     int64
	CreatedMs int64
	Content   Content
}

// Content is the content of a row's message.
type Content struct {
	Size    int64 // of headers and body, bytes
	Topic   string
	Headers sql.NullString
	Body    []byte
	whole   bool // headers and body were read
}

const (
	// BatchRows limits the identities in a statement, and so the operations of
	// a round.
	BatchRows = 500
	// batchBytes limits the bytes of headers and bodies that a round holds in
	// memory, except that it takes at least one row.
	batchBytes = 16 << 20
	// hugeRow is the size from which on a row is not even read: no queue's
	// limit allows it, however its headers are escaped.
	hugeRow = 128 << 20
	// inlineSize is the size up to which headers and body come with the row
	// itself: larger ones are read when it is their turn.
	inlineSize = 16 << 10
	// columns are the columns that scan reads.
	columns = "id, queue, message_key, message_id, op, status, maybe, token, uid, target, revision, due_ms, created_ms, {size}, topic, " +
		"CASE WHEN {size} <= 16384 THEN {headers} END, CASE WHEN {size} <= 16384 THEN body END"
)

func (r *Row) scan(rows *sql.Rows) error {
	err := rows.Scan(&r.Number, &r.Queue, &r.Key, &r.ID, &r.Verb, &r.State, &r.Maybe, &r.Token, &r.UID, &r.Target, &r.Revision,
		&r.DueMs, &r.CreatedMs, &r.Content.Size, &r.Content.Topic, &r.Content.Headers, &r.Content.Body)
	r.Content.whole = r.Content.Size <= inlineSize
	return err
}

// Cursor is a position in a reader's order of rows: after the row of that instant
// and number. The zero value is the beginning.
type Cursor struct {
	Ms, Number int64
}

// Cursor returns the position after the row among the pending rows.
func (r *Row) Cursor() Cursor {
	if r.Verb != VerbSchedule {
		return Cursor{0, r.Number}
	}
	return Cursor{r.DueMs, r.Number}
}

// IsUnnoted reports whether a producer may still change the reschedule: until [Tx.Note],
// its revision is the due time in force.
func (r *Row) IsUnnoted() bool { return r.Verb == VerbReschedule && r.Revision > 0 }

// Version is the row's message under its token.
func (r *Row) Version() Version { return Version{r.Identity, r.Token} }

// Rename gives the row another token, as Write does in the table.
func (r *Row) Rename(token string) {
	if r.UID == "" && r.Token != token {
		r.UID = r.Token
	}
	r.Token = token
}

// IsWhole reports whether headers and body were read.
func (r *Row) IsWhole() bool { return r.Content.whole }

// Forget releases headers and body, if they are large.
func (r *Row) Forget() {
	if r.Content.Size > inlineSize {
		r.Content.Headers, r.Content.Body, r.Content.whole = sql.NullString{}, nil, false
	}
}

// IsHuge reports whether the row is beyond any queue's limit, and so too large to read.
func (r *Row) IsHuge() bool { return r.Content.Size > hugeRow }

// DueAt is DueMs as a time.
func (r *Row) DueAt() time.Time { return time.UnixMilli(r.DueMs) }

// MaxDueMs is the beginning of the year 10000: later due times have no text form.
const MaxDueMs = 253402300800000

var errRowToken = errors.New("its token is not 16 bytes that begin with one ~")

var errDue = errors.New("due_ms is outside of 1970 to 9999")

// CheckDue returns an error for a due time without a text form, such as one in microseconds.
func CheckDue(ms int64) error {
	if ms < 0 || ms >= MaxDueMs {
		return errDue
	}
	return nil
}

// Message makes the message of a schedule. Its error says why the message can
// never be stored in a queue with that sink and that size limit in bytes.
func (r *Row) Message(sink message.SinkType, maxSize int) (*message.Message, error) {
	m := &message.Message{ID: r.ID, Key: r.Key, Topic: r.Content.Topic, Body: r.Content.Body, Queue: r.Queue, DueAt: r.DueAt(), Token: r.Token}
	if r.Verb != VerbSchedule && r.Verb != VerbReplace {
		return nil, fmt.Errorf("%w: %d", errVerb, r.Verb)
	}
	if err := CheckDue(r.DueMs); err != nil {
		return nil, err
	}
	if !message.IsRowToken(r.Token) {
		return nil, errRowToken
	}
	if r.Content.Headers.Valid && r.Content.Headers.String != "null" {
		if err := ijson.Decode([]byte(r.Content.Headers.String), &m.Headers); err != nil {
			return nil, fmt.Errorf("headers are not an object of strings: %w", err)
		}
	}
	if err := m.Validate(sink, maxSize); err != nil {
		return nil, err
	}
	m.Headers = message.WithUID(m.Headers, message.UIDOf(r.UID))
	return m, nil
}

var errVerb = errors.New("op is not 0 to 3")

// CheckOperation returns why an operation can never be applied.
func (r *Row) CheckOperation() error {
	switch {
	case r.Verb < VerbCancel || r.Verb > VerbReplace:
		return fmt.Errorf("%w: %d", errVerb, r.Verb)
	case r.Verb != VerbCancel && CheckDue(r.DueMs) != nil:
		return errDue
	case !message.IsRowToken(r.Token):
		return errRowToken
	}
	return message.CheckIdentity(r.ID, r.Key)
}

// Affordable returns how many of the rows fit in memory together.
func Affordable(rows []*Row) int {
	var bytes int64
	for i, r := range rows {
		if r.IsHuge() {
			continue
		}
		if bytes += r.Content.Size; bytes > batchBytes && i > 0 {
			return i
		}
	}
	return len(rows)
}
