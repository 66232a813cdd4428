package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/check"
)

// Findings returns the problems of the database and the tables of the outbox. It
// changes nothing: it checks rights by EXPLAIN, which needs those of the
// statement and does not run it.
func (d *Database) Findings(ctx context.Context) []check.Finding {
	f := fitness{d}
	if err := d.Check(ctx); err != nil {
		return []check.Finding{f.unfit(err)}
	}
	return slices.Concat(f.rights(ctx), f.missing(ctx), f.server(ctx), f.clock(ctx))
}

// fitness asks the database how it is set up.
type fitness struct{ *Database }

// unfit turns an error of [Database.Check] into a finding.
func (d fitness) unfit(err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "outbox_unreachable",
		What:   err.Error(),
		Why:    "rows wait in the table, and their messages are not published",
		Remedy: "correct outbox.dsn, or start the database",
	}
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case IsUnfit(err) && strings.Contains(err.Error(), "needed is"):
		f.Code, f.Remedy = "outbox_version", "upgrade the database"
	case IsUnfit(err):
		f.Code, f.Remedy = "outbox_schema", "bridge outbox migrate up --config FILE"
	case isDenied(err):
		f.Code, f.Remedy = "outbox_denied", "GRANT SELECT, UPDATE, DELETE ON "+d.table+" TO the user, and SELECT, INSERT, UPDATE ON "+d.table+"_lives"
	case errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "28") || pg.Code == "3D000"), // login, database
		errors.As(err, &my) && (my.Number == 1045 || my.Number == 1698 || my.Number == 1044): // password, plugin, database
		f.Code, f.Remedy = "outbox_login", "correct user, password and database in outbox.dsn"
	}
	return f
}

// isDenied reports whether the database refuses a statement for lack of a right.
func isDenied(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	return errors.As(err, &pg) && pg.Code == "42501" ||
		errors.As(err, &my) && slices.Contains([]uint16{1142, 1143, 1227, 1370}, my.Number)
}

// rights returns the rights on the table that the user lacks. SELECT was needed
// to come this far.
func (d fitness) rights(ctx context.Context) []check.Finding {
	return append(d.rightsOn(ctx, d.table, "rows cannot be taken, told what became of their messages, or purged", []statement{
		{"UPDATE", "EXPLAIN UPDATE {t} SET status = status WHERE 1 = 0"},
		{"DELETE", "EXPLAIN DELETE FROM {t} WHERE 1 = 0"},
	}), d.rightsOn(ctx, d.table+"_lives", "it cannot be told to which Redis the rows belong, and none is taken", []statement{
		{"INSERT", "EXPLAIN INSERT INTO {t}_lives (queue, life, seen_ms) VALUES ('', '', 0)"},
		{"UPDATE", "EXPLAIN UPDATE {t}_lives SET life = life WHERE 1 = 0"},
	})...)
}

// statement is a statement that needs a right.
type statement struct{ right, text string }

func (d fitness) rightsOn(ctx context.Context, table, why string, statements []statement) []check.Finding {
	var lacking []string
	for _, statement := range statements {
		err := d.query(statement.text).each(ctx, d.db, func(*sql.Rows) error { return nil })
		switch {
		case isDenied(err):
			lacking = append(lacking, statement.right)
		case err != nil:
			return []check.Finding{d.unfit(fmt.Errorf("ask for the right to %s: %w", statement.right, err))}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	rights := strings.Join(lacking, ", ")
	return []check.Finding{{
		Level: check.Error, Code: "outbox_denied",
		What:   "the user may not " + rights + " in " + table,
		Why:    why,
		Remedy: "GRANT " + rights + " ON " + table + " TO the user",
	}}
}

// indexNames are the indexes of the newest schema, behind the table's name; the
// unique one first.
func (d fitness) indexNames() []string {
	if d.dialect.name == schema.Postgres {
		return []string{"live", "history", "finished", "due", "stored", "operations"}
	}
	return []string{"live", "history", "finished", "due", "open"}
}

// indexes returns the indexes that the table has and the database uses.
func (d *Database) indexes(ctx context.Context) (have map[string]bool, err error) {
	q := d.query("SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid").
		add(" AND i.indrelid = to_regclass(?)", d.table)
	if d.dialect.name == schema.MySQL {
		in, name := schema.Split(d.table)
		q = d.query("SELECT DISTINCT index_name FROM information_schema.statistics").
			add(" WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?", in, name)
	}
	have = map[string]bool{}
	err = q.each(ctx, d.db, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		have[name] = true
		return err
	})
	return have, err
}

// missing returns findings for indexes that the table lacks, or that PostgreSQL does not use.
func (d fitness) missing(ctx context.Context) []check.Finding {
	have, err := d.indexes(ctx)
	if err != nil {
		return []check.Finding{d.unfit(fmt.Errorf("ask for the indexes: %w", err))}
	}
	var findings []check.Finding
	for i, suffix := range d.indexNames() {
		name := d.name + "_" + suffix
		if have[name] {
			continue
		}
		f := check.Finding{
			Level: check.Warning, Code: "outbox_index",
			What:   "index " + name + " is missing or invalid",
			Why:    "each poll reads the whole table: lateness grows with the rows",
			Remedy: "bridge outbox migrate up --config FILE, or its statement from `bridge outbox migrate print`",
		}
		if i == 0 {
			f.Why = "two live messages of one id are possible, and Schedule reports no duplicate"
		}
		if i == 0 || d.dialect.name == schema.MySQL {
			f.Level = check.Error // MySQL's statements name their index.
		}
		findings = append(findings, f)
	}
	return findings
}

// server checks how the server treats commits.
func (d fitness) server(ctx context.Context) []check.Finding {
	var findings []check.Finding
	warn := func(level check.Level, code, what, why, remedy string) {
		findings = append(findings, check.Finding{Level: level, Code: code, What: what, Why: why, Remedy: remedy})
	}
	const lost = "a crash of the server takes back commits: messages that a producer was told are scheduled, and what was told of others"
	if d.dialect.name == schema.Postgres {
		v := d.settings(ctx, "SELECT name, setting FROM pg_settings WHERE name IN"+
			" ('fsync', 'synchronous_commit', 'transaction_read_only', 'in_hot_standby', 'default_transaction_isolation')")
		if v["transaction_read_only"] == "on" || v["in_hot_standby"] == "on" {
			warn(check.Error, "outbox_read_only", "the server is read-only: a standby, or default_transaction_read_only",
				"rows cannot be taken", "name the primary in outbox.dsn, or target_session_attrs=read-write with several hosts")
		}
		for _, name := range []string{"fsync", "synchronous_commit"} {
			if v[name] == "off" {
				warn(check.Warning, "outbox_commit", name+" is off", lost, "ALTER SYSTEM SET "+name+" = on; SELECT pg_reload_conf()")
			}
		}
		return findings
	}
	for name, odd := range d.settings(ctx, "SHOW GLOBAL VARIABLES WHERE variable_name = 'autocommit' AND value = 'OFF'"+
		" OR variable_name = 'completion_type' AND value <> 'NO_CHAIN'"+
		" OR variable_name IN ('tx_read_only', 'transaction_read_only') AND value = 'ON'") {
		if strings.HasSuffix(name, "read_only") {
			warn(check.Error, "outbox_read_only", name+" is ON", "by default transactions may not write: rows cannot be taken", "SET GLOBAL "+name+" = OFF")
			continue
		}
		warn(check.Warning, "outbox_session", name+" is "+odd+" for new sessions",
			"the bridge sets its own; a row that a producer inserts outside of a transaction waits for a COMMIT that may never come",
			"SET GLOBAL "+name+" = DEFAULT, or set it in the producers' sessions")
	}
	v := d.settings(ctx, "SHOW VARIABLES WHERE variable_name IN"+
		" ('read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit', 'transaction_isolation', 'tx_isolation')")
	in, name := schema.Split(d.table)
	engine := d.settings(ctx, "SELECT 'engine', engine FROM information_schema.tables"+
		" WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?", in, name)["engine"]
	if v["read_only"] == "ON" || v["super_read_only"] == "ON" {
		warn(check.Error, "outbox_read_only", "the server is read-only", "rows cannot be taken", "name the primary in outbox.dsn, or SET GLOBAL read_only = OFF")
	}
	if flush := v["innodb_flush_log_at_trx_commit"]; flush != "" && flush != "1" {
		warn(check.Warning, "outbox_commit", "innodb_flush_log_at_trx_commit is "+flush, lost, "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in my.cnf")
	}
	if isolation := v["transaction_isolation"] + v["tx_isolation"]; strings.HasPrefix(isolation, "SERIALIZABLE") {
		warn(check.Warning, "outbox_isolation", "transactions are SERIALIZABLE by default",
			"reads of producers lock too, and their transactions deadlock; the bridge has its own isolation", "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED")
	}
	if engine != "" && !strings.EqualFold(engine, "InnoDB") {
		warn(check.Error, "outbox_engine", "the table's engine is "+engine, "it has no transactions: rows that are rolled back are published", "ALTER TABLE "+d.table+" ENGINE = InnoDB")
	}
	return findings
}

// settings reads names and values. Unreadable settings are not judged.
func (d fitness) settings(ctx context.Context, text string, args ...any) map[string]string {
	values := map[string]string{}
	_ = d.query("").add(text, args...).each(ctx, d.db, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		values[name] = value
		return err
	})
	return values
}

// clock compares the database's clock with ours.
func (d fitness) clock(ctx context.Context) []check.Finding {
	before := time.Now()
	ms, read, err := d.Clock(ctx)
	if err != nil {
		return []check.Finding{d.unfit(err)}
	}
	return check.Skew("the database", check.Certain(time.UnixMilli(ms).Sub(read), time.Since(before)))
}
