package outbox

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// verb is what a row asks for.
type verb int16

const (
	verbSchedule   verb = 0
	verbCancel     verb = 1
	verbReschedule verb = 2
)

func (v verb) String() string {
	switch v {
	case verbSchedule:
		return "schedule"
	case verbCancel:
		return "cancel"
	case verbReschedule:
		return "reschedule"
	default:
		return "unknown"
	}
}

// state is a row's status.
type state int16

const (
	statePending    state = 0
	stateStored     state = 1
	statePublished  state = 2
	stateCancelled  state = 3
	stateTooLate    state = 4
	stateUnknown    state = 5
	stateRefused    state = 6
	stateSuperseded state = 7
)

var stateNames = [...]string{"pending", "stored", "published", "cancelled", "too_late", "unknown", "refused", "superseded"}

func (s state) String() string {
	if s >= 0 && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// identity names a message: at most one row of it with verb schedule lives.
type identity struct {
	queue, key, id string
}

// row is one row of the table.
type row struct {
	identity
	number    int64 // the column id: the revision
	verb      verb
	state     state
	maybe     bool // a copy may be out, as a reschedule has learned
	token     string
	target    sql.NullInt64
	revision  int64
	dueMs     int64
	createdMs int64
	content   content
}

// content is what a row has to publish.
type content struct {
	size    int64 // of headers and body, bytes
	topic   string
	headers sql.NullString
	body    []byte
	whole   bool // headers and body were read
}

const (
	// inlineSize is up to how many bytes of headers and body come with the row
	// itself: larger ones are read when it is their turn.
	inlineSize = 16 << 10
	// columns are what scan reads.
	columns = "id, queue, message_key, message_id, op, status, maybe, token, target, revision, due_ms, created_ms, {size}, topic, " +
		"CASE WHEN {size} <= 16384 THEN {headers} END, CASE WHEN {size} <= 16384 THEN body END"
)

func (r *row) scan(rows *sql.Rows) error {
	err := rows.Scan(&r.number, &r.queue, &r.key, &r.id, &r.verb, &r.state, &r.maybe, &r.token, &r.target, &r.revision,
		&r.dueMs, &r.createdMs, &r.content.size, &r.content.topic, &r.content.headers, &r.content.body)
	r.content.whole = r.content.size <= inlineSize
	return err
}

// loadMs is the column of that name: when the relay takes the row.
func (r *row) loadMs() int64 {
	if r.verb != verbSchedule {
		return 0
	}
	return r.dueMs
}

func (r *row) dueAt() time.Time { return time.UnixMilli(r.dueMs) }

// maxDueMs is where the year 10000 begins: later ones have no text form.
const maxDueMs = 253402300800000

var errRowToken = errors.New("its token is not 16 bytes that begin with one ~")

var errDue = errors.New("due_ms is outside of 1970 to 9999")

// message makes the message of a schedule, or says why it can never be stored.
func (r *row) message(q *Queue) (*message.Message, error) {
	m := &message.Message{ID: r.id, Key: r.key, Topic: r.content.topic, Body: r.content.body, Queue: r.queue, DueAt: r.dueAt(), Token: r.token}
	if r.dueMs < 0 || r.dueMs >= maxDueMs {
		return nil, errDue
	}
	if !message.IsRowToken(r.token) {
		return nil, errRowToken
	}
	if r.content.headers.Valid && r.content.headers.String != "null" {
		if err := json.Unmarshal([]byte(r.content.headers.String), &m.Headers); err != nil {
			return nil, fmt.Errorf("headers are no object of strings: %w", err)
		}
	}
	if err := m.Validate(q.Sink, q.MaxMessage); err != nil {
		return nil, err
	}
	return m, nil
}
