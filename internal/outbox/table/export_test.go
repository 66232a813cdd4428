package table

import (
	"database/sql"
	"time"
)

// What tests see of the statements.
const Columns = columns

// ErrState is the answer to a state that there is not.
var ErrState = errState

// Statement is its text, with its arguments.
func (q *query) Statement() (text string, args []any) { return q.text.String(), q.args }

func (d *Database) QueryOpen(list []Identity) *query { return (&Tx{db: d}).openQuery(list) }

func (d *Database) QueryRecent(list []Identity) *query { return d.recentQuery(list) }

func (d *Database) QueryEnded(list []Identity) *query {
	return d.query("").of(byIdentity, list, "queue, message_key, message_id, token, status", "op = 0 AND status > 1", "")
}

func (d *Database) QueryHeads(w Work) *query { return (&Tx{db: d}).headsQuery(w) }

func (d *Database) QueryWaiting(queues []string) *query { return d.Pending().lookQuery(queues) }

func (d *Database) QueryNew(queues []string, floor Floor, untilMs int64) *query {
	return d.Pending().newQuery(queues, floor, untilMs)
}

func (d *Database) QueryOperations(w Work) *query { return (&Tx{db: d}).operationsQuery(w) }

func (d *Database) QueryStored(what, queue string, after Cursor, beforeMs int64, most int) *query {
	return d.Stored().storedQuery(what, queue, after, beforeMs, most)
}

func (d *Database) QueryTopics(after, to int64, horizon time.Duration, most int) *query {
	return d.Pending().topicsQuery(after, to, horizon, most)
}

func (d *Database) QueryChange(numbers []int64) *query { return d.change("status = 1").ids(numbers) }

// SQL is the transaction for other statements.
func (t *Tx) SQL() *sql.Tx { return t.tx }
