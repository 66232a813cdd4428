package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

// dialect is what differs between the databases.
type dialect struct {
	name schema.Dialect
	// now is the database's clock, milliseconds since 1970.
	now string
	// size is how many bytes headers and body have.
	size string
	// headers is the column as JSON text.
	headers string
	// beginning is the first statement of a transaction, if any.
	beginning string
	// arrays says that a list is one argument, and that arguments are numbered.
	arrays bool
	// hint names the index to use: %s is the table's name.
	hint map[index]string
	// fence ends a subquery that is to be run row by row, and not as a join: by
	// statistics from before its table was filled, a join reads all of it for every
	// row.
	fence string
}

type index string

const (
	byDue      index = "due"
	byIdentity index = "history"
)

var postgres = dialect{
	name:    schema.Postgres,
	now:     "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
	size:    "octet_length(body) + coalesce(octet_length(headers::text), 0)",
	headers: "headers::text",
	// A server must not keep the locks of a relay that has vanished. And it shall
	// walk along the indexes, and stop where a batch is full: by statistics that lag
	// behind a table of this kind it would rather read and sort all of it.
	beginning: "SELECT set_config('idle_in_transaction_session_timeout', '60s', true), set_config('lock_timeout', '5s', true), " +
		"set_config('statement_timeout', '10s', true), set_config('enable_seqscan', 'off', true), " +
		"set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)",
	arrays: true,
	fence:  " OFFSET 0",
}

var mysqlDialect = dialect{
	name:    schema.MySQL,
	now:     "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000",
	size:    "LENGTH(body) + COALESCE(LENGTH(headers), 0)",
	headers: "headers",
	// A lock on the unique index would make a producer's duplicate wait.
	hint:  map[index]string{byDue: " FORCE INDEX (%s_due)", byIdentity: " FORCE INDEX (%s_history)"},
	fence: " LIMIT 1",
}

// query is a statement in the making.
type query struct {
	d    *Database
	text strings.Builder
	args []any
}

// query begins a statement; "{t}" stands for the table, "{now}" for the
// database's clock, "{size}" and "{headers}" for what the dialect calls them.
func (d *Database) query(text string) *query {
	return (&query{d: d}).add(text)
}

// add appends text; each "?" takes the next of args.
func (q *query) add(text string, args ...any) *query {
	text = strings.NewReplacer("{t}", q.d.table, "{now}", q.d.dialect.now, "{size}", q.d.dialect.size, "{headers}", q.d.dialect.headers).
		Replace(text)
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

// from appends the table and which index to use.
func (q *query) from(by index) *query { return q.add(" FROM {t}").hinted(by) }

// hinted appends which index to use.
func (q *query) hinted(by index) *query {
	if hint, ok := q.d.dialect.hint[by]; ok {
		_, _ = fmt.Fprintf(&q.text, hint, q.d.name) // never fails
	}
	return q
}

// after appends that a row comes after the cursor, in a form that each database walks
// its index for.
func (q *query) after(column string, c cursor) *query {
	if q.d.dialect.arrays {
		return q.add(" AND ("+column+", id) > (?, ?)", c.loadMs, c.number)
	}
	return q.add(" AND ("+column+" > ? OR "+column+" = ? AND id > ?)", c.loadMs, c.loadMs, c.number)
}

// ids appends "IN (…)" for numbers.
func (q *query) ids(list []int64) *query {
	if q.d.dialect.arrays {
		return q.add(" = ANY(?)", list)
	}
	return q.list(" IN ", anys(list))
}

// text is an argument that is compared with an identity. MySQL has it as bytes:
// an identity need not be valid text.
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

// hasOperation is the condition that an operation is pending. PostgreSQL shall
// not go by the index of pending rows, where it is for an identity.
const hasOperation = "op > 0 AND status + 0 = 0"

// of is a statement that reads what of the rows of identities, each once, where
// the condition holds; rest are a grouping, an order and a lock. In PostgreSQL
// each identity is looked up by itself: see fence.
func (d *Database) of(list []identity, what, condition, rest string) *query {
	seen := make(map[identity]bool, len(list))
	list = slices.DeleteFunc(slices.Clone(list), func(it identity) bool {
		twice := seen[it]
		seen[it] = true
		return twice
	})
	if !d.dialect.arrays {
		// With its 8 MiB MySQL 8 gives up on 500 identities and reads the whole table.
		// To MariaDB, which has no such limit, the hint is a comment.
		q := d.query("SELECT /*+ SET_VAR(range_optimizer_max_mem_size = 0) */ " + what).from(byIdentity).add(" WHERE (queue, message_key, message_id) IN (")
		for i, it := range list {
			if i > 0 {
				q.add(",")
			}
			// As bytes: an identity need not be valid text.
			q.add("(?,?,?)", []byte(it.queue), []byte(it.key), []byte(it.id))
		}
		return q.add(") AND (" + condition + ")" + rest)
	}
	queues, keys, ids := make([]string, len(list)), make([]string, len(list)), make([]string, len(list))
	for i, it := range list {
		queues[i], keys[i], ids[i] = it.queue, it.key, it.id
	}
	return d.query("").add("SELECT found.* FROM unnest(?::text[], ?::text[], ?::text[]) AS wanted (queue, message_key, message_id)"+
		" CROSS JOIN LATERAL (SELECT "+what+" FROM {t}"+
		" WHERE {t}.queue = wanted.queue AND {t}.message_key = wanted.message_key AND {t}.message_id = wanted.message_id"+
		" AND ("+condition+")"+rest+d.dialect.fence+") AS found", queues, keys, ids)
}
