package sim

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
)

// database is a MySQL as the outbox knows one: its tables, its clock, sessions with
// transactions at READ COMMITTED, and locks of rows. SQLite runs the statements, one at a time,
// see [toSQLite]. What a transaction has written is not there until it commits: each statement of
// it begins with doing that again, and ends with taking it back. TestRealDatabase gives the same
// statements to a real server and compares each answer.
type database struct {
	clock     func() time.Time
	conn      driver.Conn
	prepared  map[string]driver.Stmt
	texts     map[string]translated
	locks     map[string]*session // by what is locked: a row's number, or the identity of a message that lives
	waiting   []*statement        // for locks
	last      int64               // the number that the last row got
	committed func(changes []change)
	rolled    func(writes []write)

	// While a statement runs: by whom, when, and the number before the next one.
	by     *session
	now    time.Time
	number int64
}

// session is the server's end of a connection.
type session struct {
	name   string
	inTx   bool
	isGone bool
	writes []write
	held   []string // keys of locks
	blocks *session // for whom it waits
}

// write is a statement of a transaction that is done again.
type write struct {
	text   translated
	args   []driver.NamedValue
	at     time.Time
	number int64
}

// change is a row after a commit.
type change struct {
	row    simRow
	isGone bool
	age    time.Duration // of the statement
}

// simRow is what a row of the outbox says.
type simRow struct {
	number, op, status int64
	key, id            string
	token              string
	target             int64 // 0: none
	revision           int64
	dueMs              int64
	maybe, live        bool
	reason, body       string
	came               time.Duration // when it was committed first
}

// rowColumns are what changed tells of a row.
const rowColumns = "id, op, status, message_key, message_id, token, COALESCE(target, 0), revision, due_ms, maybe, COALESCE(live, 0), reason, body"

func rowOf(v []driver.Value) (r simRow) {
	n := func(i int) int64 { n, _ := v[i].(int64); return n }
	s := func(i int) string { s, _ := v[i].(string); return s }
	return simRow{n(0), n(1), n(2), s(3), s(4), s(5), n(6), n(7), n(8), n(9) != 0, n(10) != 0, s(11), s(12), 0}
}

// statement is one that a session runs, or waits to run.
type statement struct {
	s        *session
	text     string
	args     []driver.NamedValue
	patience time.Duration // for locks
	done     func(result, error)
}

// result is what a statement has yielded.
type result struct {
	columns []string
	rows    [][]driver.Value
	changed int64
}

// RowsAffected implements [driver.Result].
func (r result) RowsAffected() (int64, error) { return r.changed, nil }

// LastInsertId implements [driver.Result]. Nobody asks.
func (r result) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

// theTables are those of the migrations for MySQL; TestRealDatabase holds the columns against them.
var theTables = []string{
	`CREATE TABLE delay_outbox (
		id INT NOT NULL DEFAULT (next_number()), queue TEXT NOT NULL, message_key TEXT NOT NULL DEFAULT '', message_id TEXT NOT NULL,
		op INT NOT NULL DEFAULT 0, status INT NOT NULL DEFAULT 0, tried INT NOT NULL DEFAULT 0, token TEXT NOT NULL, target INT,
		revision INT NOT NULL DEFAULT 0, due_ms INT NOT NULL, load_ms INT GENERATED ALWAYS AS (CASE WHEN op = 0 THEN due_ms ELSE 0 END) STORED,
		topic TEXT NOT NULL DEFAULT '', headers TEXT, body TEXT NOT NULL DEFAULT '', created_ms INT NOT NULL DEFAULT (clock_ms(0)),
		finished_ms INT, reason TEXT NOT NULL DEFAULT '', live INT GENERATED ALWAYS AS (CASE WHEN op = 0 AND status IN (0, 1) THEN 1 END) STORED,
		maybe INT NOT NULL DEFAULT 0, uid TEXT NOT NULL DEFAULT '', PRIMARY KEY (id)) WITHOUT ROWID`,
	`CREATE UNIQUE INDEX delay_outbox_live ON delay_outbox (queue, message_key, message_id, live)`,
	`CREATE INDEX delay_outbox_due ON delay_outbox (queue, status, load_ms, id)`,
	`CREATE TABLE delay_outbox_lives (queue TEXT NOT NULL, life TEXT NOT NULL, seen_ms INT NOT NULL, PRIMARY KEY (queue)) WITHOUT ROWID`,
	`CREATE TABLE statistics (index_name TEXT, table_schema TEXT, table_name TEXT)`,
	`INSERT INTO statistics VALUES ('delay_outbox_live', 'app', 'delay_outbox'), ('delay_outbox_history', 'app', 'delay_outbox'), ('delay_outbox_finished', 'app', 'delay_outbox'),
		('delay_outbox_due', 'app', 'delay_outbox'), ('delay_outbox_open', 'app', 'delay_outbox')`,
}

// theDatabase is the one whose statement runs, for the functions of SQLite.
var theDatabase *database

func init() { //nolint:gochecknoinits // a driver is made once
	function := func(name string, args int32, do func(args []driver.Value) driver.Value) {
		sqlite.MustRegisterScalarFunction(name, args, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			return do(args), nil
		})
	}
	// The clock in milliseconds, rounded down, or up.
	function("clock_ms", 1, func(args []driver.Value) driver.Value {
		us := theDatabase.now.UnixMicro()
		if args[0] == int64(1) {
			us += 999
		}
		return us / 1000
	})
	function("next_number", 0, func([]driver.Value) driver.Value {
		theDatabase.number++
		return theDatabase.number
	})
	// Whether nobody else holds the row; take holds it, too.
	function("is_free", 1, func(args []driver.Value) driver.Value {
		number, _ := args[0].(int64)
		return toInt(theDatabase.by.isFree(theDatabase, rowLock(number)))
	})
	function("take", 1, func(args []driver.Value) driver.Value {
		number, _ := args[0].(int64)
		free := theDatabase.by.isFree(theDatabase, rowLock(number))
		if free {
			theDatabase.lock(theDatabase.by, rowLock(number))
		}
		return toInt(free)
	})
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func rowLock(number int64) string { return fmt.Sprint("row ", number) }

func newDatabase(clock func() time.Time) *database {
	d := &database{clock: clock, prepared: map[string]driver.Stmt{}, texts: map[string]translated{}, locks: map[string]*session{}}
	pool, err := sql.Open("sqlite", ":memory:") // Its driver is what knows our functions.
	if err == nil {
		d.conn, err = pool.Driver().Open(":memory:")
		_ = pool.Close()
	}
	d.by = &session{}
	for _, table := range theTables {
		if err == nil {
			_, err = d.plain(table)
		}
	}
	if err != nil {
		panic(err)
	}
	return d
}

func (d *database) close() {
	for _, text := range sortedKeys(d.prepared) {
		_ = d.prepared[text].Close()
	}
	_ = d.conn.Close()
}

// translated is a statement as SQLite knows it.
type translated struct {
	text     string
	isRows   bool // it writes rows of the outbox
	isWrite  bool
	isLock   bool // it locks what it returns, by the number in its first column
	isTaking bool // it locks by itself
}

var (
	forceIndex  = regexp.MustCompile(` FORCE INDEX \([^)]*\)`)
	newComment  = regexp.MustCompile(`/\*!80022 (.*?)\*/`) // What a MySQL since then takes for no comment.
	otherWords  = regexp.MustCompile(`/\*.*?\*/`)
	manyOfThree = regexp.MustCompile(`IN \((\(\?,\?,\?\)(,\(\?,\?,\?\))*)\)`)
	skipOne     = regexp.MustCompile(` +FOR (SHARE|UPDATE) SKIP LOCKED *\)`)
	ofOne       = regexp.MustCompile(`WHERE (t\.)?id = \?`)
)

// toSQLite is what a statement of the outbox for MySQL is to SQLite.
func (d *database) toSQLite(text string) translated {
	if t, ok := d.texts[text]; ok {
		return t
	}
	was := text
	text = newComment.ReplaceAllString(text, "$1")
	text = otherWords.ReplaceAllString(forceIndex.ReplaceAllString(text, ""), "")
	text = strings.NewReplacer(
		"((TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + 999) DIV 1000)", "clock_ms(1)",
		"TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000", "clock_ms(0)",
		"STRAIGHT_JOIN", "JOIN", "GREATEST(", "MAX(", "INSERT IGNORE", "INSERT OR IGNORE", "VERSION()", "'8.0.36'", "information_schema.statistics", "statistics",
		"DELETE delay_outbox FROM JSON_TABLE(?, '$[*]' COLUMNS (number BIGINT PATH '$')) AS w STRAIGHT_JOIN delay_outbox ON delay_outbox.id = w.number",
		"DELETE FROM delay_outbox WHERE id IN (SELECT value FROM json_each(?))", "DATABASE()", "'app'", "UNION ALL (SELECT", "UNION ALL SELECT * FROM (SELECT",
		"FROM ((SELECT", "FROM (SELECT * FROM (SELECT",
	).Replace(text)
	text = manyOfThree.ReplaceAllString(text, "IN (VALUES $1)")
	if strings.HasPrefix(text, "(SELECT") {
		text = "SELECT * FROM " + text
	}
	t := translated{}
	if before, ok := strings.CutSuffix(text, " FOR UPDATE SKIP LOCKED"); ok {
		order := strings.LastIndex(before, " ORDER BY")
		text, t.isLock = before[:order]+" AND is_free(id)"+before[order:], true
	}
	for skipOne.MatchString(text) { // A subquery that locks one row, by its number.
		end := skipOne.FindStringIndex(text)
		of := ofOne.FindAllStringSubmatchIndex(text[:end[0]], -1)
		at := of[len(of)-1]
		name := "id"
		if at[2] >= 0 {
			name = "t.id"
		}
		text, t.isTaking = text[:end[0]]+" AND take("+name+"))"+text[end[1]:], true
	}
	t.isWrite = strings.HasPrefix(text, "INSERT") || strings.HasPrefix(text, "UPDATE") || strings.HasPrefix(text, "DELETE")
	if t.isRows = t.isWrite && !strings.Contains(text, "delay_outbox_lives"); t.isRows {
		text += " RETURNING " + rowColumns
	}
	t.text = text
	if len(d.texts) > 2000 {
		clear(d.texts)
	}
	d.texts[was] = t
	return t
}

// plain runs a statement of SQLite.
func (d *database) plain(text string, args ...driver.NamedValue) (r result, err error) {
	theDatabase = d
	stmt, ok := d.prepared[text]
	if !ok {
		if stmt, err = d.conn.Prepare(text); err != nil {
			return r, fmt.Errorf("%w: %s", err, text)
		}
		if len(d.prepared) > 300 {
			for _, text := range sortedKeys(d.prepared) {
				_ = d.prepared[text].Close()
			}
			clear(d.prepared)
		}
		d.prepared[text] = stmt
	}
	values := make([]driver.Value, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	if !strings.HasPrefix(text, "SELECT") && !strings.Contains(text, " RETURNING ") {
		done, err := stmt.Exec(values) //nolint:staticcheck // there is no context
		if err == nil {
			r.changed, _ = done.RowsAffected()
		}
		return r, err
	}
	rows, err := stmt.Query(values) //nolint:staticcheck // there is no context
	if err != nil {
		return r, err
	}
	defer func() { _ = rows.Close() }()
	r.columns = rows.Columns()
	for {
		row := make([]driver.Value, len(r.columns))
		if err = rows.Next(row); err != nil {
			break
		}
		r.rows = append(r.rows, row)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	r.changed = int64(len(r.rows))
	return r, err
}

func (s *session) isFree(d *database, key string) bool {
	holder := d.locks[key]
	return holder == nil || holder == s
}

func (d *database) lock(s *session, key string) {
	if s.inTx && d.locks[key] != s {
		d.locks[key] = s
		s.held = append(s.held, key)
	}
}

// blockedError says for whom a statement must wait.
type blockedError struct{ by *session }

func (blockedError) Error() string { return "locked" }

// sqlArgs makes what SQLite compares as MySQL does.
func sqlArgs(args []driver.NamedValue) []driver.NamedValue {
	args = slices.Clone(args)
	for i := range args {
		switch v := args[i].Value.(type) {
		case []byte:
			args[i].Value = string(v)
		case bool:
			args[i].Value = toInt(v)
		}
	}
	return args
}

// run runs a statement of a session, or says for whom it must wait.
func (d *database) run(s *session, text string, args []driver.NamedValue) (result, error) {
	switch text {
	case "START TRANSACTION":
		s.inTx = true
		return result{}, nil
	case "COMMIT":
		return result{}, d.commit(s)
	case "ROLLBACK":
		d.rollback(s)
		return result{}, nil
	}
	w := write{d.toSQLite(text), sqlArgs(args), d.clock(), d.last}
	if !w.text.isWrite && len(s.writes) == 0 {
		return d.read(s, w)
	}
	if _, err := d.plain("BEGIN"); err != nil {
		return result{}, err
	}
	end := "ROLLBACK"
	defer func() {
		if _, err := d.plain(end); err != nil {
			panic(err)
		}
	}()
	for _, before := range s.writes {
		if _, err := d.one(s, before); err != nil {
			panic(fmt.Sprintf("a statement that was done is not possible: %s: %s", err, before.text.text))
		}
	}
	if !w.text.isWrite {
		return d.read(s, w)
	}
	r, err := d.one(s, w)
	used := d.number
	if err == nil {
		err = d.claim(s, w, r)
	}
	if errors.As(err, new(blockedError)) {
		return result{}, err
	}
	if d.last = max(d.last, used); err != nil {
		return result{}, mysqlError(err)
	}
	switch all := d.number - w.number; { // What was ignored stays ignored, whatever is committed meanwhile.
	case strings.HasPrefix(w.text.text, "INSERT OR IGNORE INTO delay_outbox ") && r.changed == 0:
		return r, nil
	case strings.HasPrefix(w.text.text, "INSERT OR IGNORE INTO delay_outbox ") && r.changed < all:
		panic("a part of a statement is a duplicate: that is not simulated")
	}
	if s.inTx {
		s.writes = append(s.writes, w)
	} else {
		end = "COMMIT"
		d.tell(w, r)
	}
	return r, nil
}

// read runs a statement that writes nothing.
func (d *database) read(s *session, w write) (result, error) {
	r, err := d.one(s, w)
	if err == nil && w.text.isLock {
		for _, row := range r.rows {
			number, _ := row[0].(int64)
			d.lock(s, rowLock(number))
		}
	}
	return r, mysqlError(err)
}

// one runs a statement at its instant, with its numbers.
func (d *database) one(s *session, w write) (result, error) {
	d.by, d.now, d.number = s, w.at, w.number
	return d.plain(w.text.text, w.args...)
}

// claim locks what a statement has written, where nobody else has.
func (d *database) claim(s *session, w write, r result) error {
	if !w.text.isRows {
		return nil
	}
	var keys []string
	for _, v := range r.rows {
		row := rowOf(v)
		keys = append(keys, rowLock(row.number))
		if row.live {
			keys = append(keys, "live "+row.key+"/"+row.id)
		}
	}
	for _, key := range keys {
		if !s.isFree(d, key) {
			return blockedError{d.locks[key]}
		}
	}
	for _, key := range keys {
		d.lock(s, key)
	}
	return nil
}

func (d *database) commit(s *session) error {
	if _, err := d.plain("BEGIN"); err != nil {
		return err
	}
	type told struct {
		w write
		r result
	}
	all := make([]told, 0, len(s.writes))
	for _, w := range s.writes {
		r, err := d.one(s, w)
		if err != nil {
			panic(fmt.Sprintf("a statement that was done cannot be committed: %s: %s", err, w.text.text))
		}
		all = append(all, told{w, r})
	}
	if _, err := d.plain("COMMIT"); err != nil {
		return err
	}
	s.writes = nil
	for _, t := range all {
		d.tell(t.w, t.r)
	}
	d.release(s)
	return nil
}

func (d *database) tell(w write, r result) {
	if !w.text.isRows || d.committed == nil {
		return
	}
	changes := make([]change, len(r.rows))
	for i, v := range r.rows {
		changes[i] = change{rowOf(v), strings.HasPrefix(w.text.text, "DELETE"), d.clock().Sub(w.at)}
	}
	d.committed(changes)
}

func (d *database) rollback(s *session) {
	if len(s.writes) > 0 && d.rolled != nil {
		d.rolled(s.writes)
	}
	s.writes = nil
	d.release(s)
}

// release ends a transaction, and lets others go on.
func (d *database) release(s *session) {
	s.inTx = false
	for _, key := range s.held {
		if d.locks[key] == s {
			delete(d.locks, key)
		}
	}
	s.held = nil
	waiting := d.waiting
	d.waiting = nil
	for _, st := range waiting {
		st.s.blocks = nil
		d.try(st)
	}
}

// try runs a statement, or has it wait; where those that wait, wait for each other, it ends
// its transaction.
func (d *database) try(st *statement) {
	if st.s.isGone {
		return
	}
	at := d.clock()
	r, err := d.run(st.s, st.text, st.args)
	var blocked blockedError
	if !errors.As(err, &blocked) {
		if recordingSQL != nil {
			recordingSQL(recordedSQL{st.s.name, at, st.text, st.args, r, err})
		}
		st.done(r, err)
		return
	}
	for other := blocked.by; other != nil; other = other.blocks {
		if other == st.s {
			d.abandon(st.s)
			st.done(result{}, &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"})
			return
		}
	}
	st.s.blocks = blocked.by
	d.waiting = append(d.waiting, st)
}

// giveUp ends the wait of a statement for its lock.
func (d *database) giveUp(st *statement) {
	if i := slices.Index(d.waiting, st); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		st.s.blocks = nil
		st.done(result{}, &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"})
	}
}

// leave ends a session: what it has not committed was never there.
func (d *database) leave(s *session) {
	if s.isGone {
		return
	}
	s.isGone = true
	d.waiting = slices.DeleteFunc(d.waiting, func(st *statement) bool { return st.s == s })
	d.abandon(s)
}

// abandon takes a transaction back, which nobody has asked for.
func (d *database) abandon(s *session) {
	if recordingSQL != nil && s.inTx {
		recordingSQL(recordedSQL{session: s.name, at: d.clock(), text: "ROLLBACK"})
	}
	d.rollback(s)
}

func mysqlError(err error) error {
	var of *sqlite.Error
	if errors.As(err, &of) && strings.Contains(of.Error(), "UNIQUE") {
		return &mysql.MySQLError{Number: 1062, Message: "Duplicate entry"}
	}
	return err
}
