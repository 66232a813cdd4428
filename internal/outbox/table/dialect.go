package table

import (
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

// dialect has the differences between the databases.
type dialect struct {
	name schema.Dialect
	// now is the database's clock, milliseconds since 1970.
	now string
	// size is the size of headers and body in bytes.
	size string
	// headers is the column as JSON text.
	headers string
	// beginning is the first statement of a transaction, if any.
	beginning string
	// arrays says that a list is one argument, and that arguments are numbered.
	arrays bool
	// live and operation are the conditions for an identity's live message and for a
	// pending operation on it, open those for both. They go with the index byOpen.
	live, operation string
	open            []string
	// newest is the index of the newest migration that statements require.
	newest index
	// hint names the index to use.
	hint map[index]string
	// removal is the statement that deletes rows by their numbers, see [Tx.remove].
	removal string
	// fence ends a subquery that must run row by row, and not as a join: with
	// statistics from before its table was filled, a join reads all of it for every
	// row.
	fence string
	// none says that a subquery, in place of the dots, finds nothing.
	none string
}

type index string

const (
	byDue      index = "due"
	byIdentity index = "history"
	byNumber   index = "number"
	byOpen     index = "open"
	byFinished index = "finished"
)

var postgres = dialect{
	name:    schema.Postgres,
	now:     "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
	size:    "octet_length(body) + coalesce(octet_length(headers::text), 0)",
	headers: "headers::text",
	// A server must not keep the locks of a vanished relay. It must also walk along
	// the indexes and stop when a batch is full: with statistics that lag behind, as
	// they do for such a table, it would prefer to read and sort all of it.
	beginning: "SELECT set_config('idle_in_transaction_session_timeout', '60s', true), set_config('lock_timeout', '5s', true), " +
		"set_config('statement_timeout', '10s', true), set_config('enable_seqscan', 'off', true), " +
		"set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)",
	arrays:    true,
	live:      "op = 0 AND status IN (0, 1)",
	operation: "op * 1 > 0 AND status * 1 = 0", // op > 0 and status = 0, in exactly the expressions of the index
	open:      []string{"{live}", "{operation}"},
	newest:    "operations",
	removal:   "DELETE FROM {t} WHERE id = ANY(?)",
	fence:     " OFFSET 0",
	none:      "NOT EXISTS (…)",
}

var mysqlDialect = dialect{
	name:    schema.MySQL,
	now:     "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000",
	size:    "LENGTH(body) + COALESCE(LENGTH(headers), 0)",
	headers: "headers",
	// A lock on the unique index would make a producer's duplicate wait.
	hint: map[index]string{
		byDue: " FORCE INDEX ({name}_due)", byIdentity: " FORCE INDEX ({name}_history)", byNumber: " FORCE INDEX (PRIMARY)",
		byFinished: " FORCE INDEX ({name}_finished)", byOpen: " FORCE INDEX ({name}_open)",
	},
	live:      "finished_ms IS NULL AND op = 0 AND status IN (0, 1)",
	operation: "finished_ms IS NULL AND op > 0 AND status = 0",
	newest:    byOpen,
	open:      []string{"finished_ms IS NULL AND (op = 0 AND status IN (0, 1) OR op > 0 AND status = 0)"},
	// No hint keeps a DELETE from going over the whole table where it deletes a large part of it.
	removal: "DELETE {t} FROM JSON_TABLE(?, '$[*]' COLUMNS (number BIGINT PATH '$')) AS w STRAIGHT_JOIN {t} FORCE INDEX (PRIMARY) ON {t}.id = w.number",
	fence:   " LIMIT 1",
	// Of NOT EXISTS, MySQL makes a join, and then keeps the locks of the rows that it leaves out. MariaDB
	// keeps them whatever the words.
	none: "(…) IS NULL",
}
