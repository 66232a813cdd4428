package table

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// query is a statement under construction.
type query struct {
	d    *Database
	text strings.Builder
	args []any
}

// query begins a statement; "{t}" stands for the table, "{name}" for its name without the schema, "{now}" for the
// database's clock, "{size}", "{headers}", "{live}" and "{operation}" for what the dialect calls them.
func (d *Database) query(text string) *query {
	return (&query{d: d}).add(text)
}

// add appends text; each "?" takes the next of args.
func (q *query) add(text string, args ...any) *query {
	text = q.d.words.Replace(text)
	if !q.d.dialect.arrays {
		q.text.WriteString(text)
		q.args = append(q.args, args...)
		return q
	}
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			q.args = append(q.args, args[i-1])
			q.text.WriteString("$" + strconv.Itoa(len(q.args)))
		}
		q.text.WriteString(part)
	}
	return q
}

// from appends the table and the index to use.
func (q *query) from(by index) *query { return q.add(" FROM {t}").hinted(by) }

// hinted appends the index to use.
func (q *query) hinted(by index) *query { return q.add(q.d.dialect.hint[by]) }

// after appends the condition that a row comes after the cursor, in a form for which
// each database walks its index.
func (q *query) after(column string, c Cursor) *query {
	if q.d.dialect.arrays {
		return q.add(" AND ("+column+", id) > (?, ?)", c.Ms, c.Number)
	}
	// A statement that locks goes over two ranges one after the other, and what it has locked
	// behind the first may be what the owner of a row in the second waits for. (It waits for
	// no more than a moment, but MariaDB may look for deadlocks just then.)
	if c.Number == 0 { // No row has that number.
		return q.add(" AND "+column+" >= ?", c.Ms)
	}
	return q.add(" AND ("+column+" > ? OR "+column+" = ? AND id > ?)", c.Ms, c.Ms, c.Number)
}

// ids appends "IN (…)" for numbers.
func (q *query) ids(list []int64) *query {
	if q.d.dialect.arrays {
		return q.add(" = ANY(?)", list)
	}
	return q.list(" IN ", anys(list))
}

// texts appends "IN (…)" for text.
func (q *query) texts(list []string) *query {
	if q.d.dialect.arrays {
		return q.add(" = ANY(?::text[])", list)
	}
	bytes := make([]any, len(list))
	for i, s := range list {
		bytes[i] = []byte(s)
	}
	return q.list(" IN ", bytes)
}

// in returns "IN (…)" for a condition that is written before its arguments are added, and those
// arguments, without the ones that the database could not have, see possible.
func (d *Database) in(list []string) (text string, args []any) {
	if d.dialect.arrays {
		return " = ANY(?::text[])", []any{slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !isPostgresText(s) })}
	}
	args = make([]any, len(list))
	for i, s := range list {
		args[i] = []byte(s)
	}
	return " IN (" + strings.TrimSuffix(strings.Repeat("?,", len(list)), ",") + ")", args
}

// text converts an argument that is compared with an identity. MySQL stores it
// as bytes, because an identity need not be valid text.
func (d *Database) text(s string) any {
	if d.dialect.arrays {
		return s
	}
	return []byte(s)
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

func (q *query) list(operator string, args []any) *query {
	marks := strings.TrimSuffix(strings.Repeat("?,", len(args)), ",")
	return q.add(operator+"("+marks+")", args...)
}

// of appends a statement that reads the columns in what of the identities' rows, each once, that meet the
// condition, whose arguments are in more; rest has an order and a limit. PostgreSQL looks up each identity by
// itself: see fence.
func (q *query) of(by index, list []Identity, what, condition, rest string, more ...any) *query {
	seen := make(map[Identity]bool, len(list))
	list = slices.DeleteFunc(slices.Clone(list), func(it Identity) bool {
		twice := seen[it]
		seen[it] = true
		return twice
	})
	if !q.d.dialect.arrays {
		// With its 8 MiB MySQL 8 gives up on 500 identities and reads the whole table.
		// To MariaDB, which has no such limit, the hint is a comment.
		q.add("SELECT /*+ SET_VAR(range_optimizer_max_mem_size = 0) */ " + what).from(by)
		marks, args := strings.TrimSuffix(strings.Repeat("(?,?,?),", len(list)), ","), make([]any, 0, 3*len(list))
		for _, it := range list {
			args = append(args, []byte(it.Queue), []byte(it.Key), []byte(it.ID)) // An identity need not be valid text.
		}
		return q.add(" WHERE (queue, message_key, message_id) IN ("+marks+") AND ("+condition+")"+rest, append(args, more...)...)
	}
	queues, keys, ids := make([]string, len(list)), make([]string, len(list)), make([]string, len(list))
	for i, it := range list {
		queues[i], keys[i], ids[i] = it.Queue, it.Key, it.ID
	}
	return q.add("SELECT found.* FROM unnest(?::text[], ?::text[], ?::text[]) AS wanted (queue, message_key, message_id)"+
		" CROSS JOIN LATERAL (SELECT "+what+" FROM {t}"+
		" WHERE {t}.queue = wanted.queue AND {t}.message_key = wanted.message_key AND {t}.message_id = wanted.message_id"+
		" AND ("+condition+")"+rest+q.d.dialect.fence+") AS found", append([]any{queues, keys, ids}, more...)...)
}

// possible returns the identities that the database could have: PostgreSQL
// refuses a statement with others.
func (d *Database) possible(list []Identity) []Identity {
	valid := func(it Identity) bool { return isPostgresText(it.Key + "/" + it.ID) }
	if !d.dialect.arrays || !slices.ContainsFunc(list, func(it Identity) bool { return !valid(it) }) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(it Identity) bool { return !valid(it) })
}

// isPostgresText reports whether PostgreSQL accepts s as text.
func isPostgresText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func (d *Database) rows(ctx context.Context, tx querier, q *query) ([]*Row, error) {
	var list []*Row
	err := q.each(ctx, tx, func(rows *sql.Rows) error {
		r := new(Row)
		list = append(list, r)
		return r.scan(rows)
	})
	return list, err
}

// querier is *sql.DB or *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// each runs a query and passes on its rows.
func (q *query) each(ctx context.Context, db querier, scan func(*sql.Rows) error) error {
	return q.eachWithin(ctx, db, statementTimeout, scan)
}

// eachWithin is each for a statement that may take longer than others.
func (q *query) eachWithin(ctx context.Context, db querier, within time.Duration, scan func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer q.traced(db)()
	rows, err := db.QueryContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has the errors that matter.
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// exec runs a statement and returns how many rows it found.
func (q *query) exec(ctx context.Context, db querier) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	defer q.traced(db)()
	result, err := db.ExecContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// traced begins a traced statement, which the returned function ends.
func (q *query) traced(db querier) (end func()) {
	if q.d.trace == nil {
		return func() {}
	}
	statement, begin := Statement{Query: q.text.String(), Args: q.args}, time.Now()
	if _, inside := db.(*sql.Tx); inside {
		statement.Beginning = q.d.dialect.beginning
	}
	return func() {
		statement.Took = time.Since(begin)
		q.d.trace(statement)
	}
}
