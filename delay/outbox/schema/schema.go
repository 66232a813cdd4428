// Package schema holds the tables of the outbox as SQL migrations in the format
// of goose, one set per dialect. It connects to no database and imports no
// driver: "bridge outbox migrate" runs the migrations, and other tools may take
// their text.
package schema

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects. MySQL also stands for MariaDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
)

// DefaultTable is the name of the table if none is configured.
const DefaultTable = "delay_outbox"

// TableRule says which names [CheckTable] accepts.
const TableRule = "1 to 41 of a-z 0-9 _, the first no digit; a schema of the same form and a dot may come before"

// fileTable is the table's name in the SQL files. They name tables, and objects that are dropped
// by themselves, with the schema, and objects that are created with their table without it.
const fileTable = "app." + DefaultTable

// Version is the version of the newest migration.
const Version = 5

//go:embed postgres/*.sql mysql/*.sql
var files embed.FS

var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,40}\.)?[a-z_][a-z0-9_]{0,40}$`)

// Migration is one step of the schema.
type Migration struct {
	// Version counts from 1.
	Version int64
	// Name is the file's name.
	Name string
	// SQL is the file's text for the table, in the format of goose.
	SQL string
	// Up makes the step and Down reverts it, in SQL without a tool's annotations.
	Up, Down string
	// Atomic says that one transaction may cover all statements of a direction. Otherwise
	// each is a transaction of its own, and may be repeated.
	Atomic bool
}

// CheckTable returns an error if the outbox's table cannot have that name, "name" or
// "schema.name" (in MySQL, a schema is a database). Its indexes are named after it,
// and its other tables are in the same schema. The name is never quoted, so a word
// that the database reserves, such as "order", does not work either, but only the
// database finds that out.
func CheckTable(table string) error {
	if !tableName.MatchString(table) {
		return fmt.Errorf("table %q: %s", table, TableRule)
	}
	return nil
}

// Split cuts a table's name into its schema, "" if it has none, and the name.
func Split(table string) (in, name string) {
	if in, name, found := strings.Cut(table, "."); found {
		return in, name
	}
	return "", table
}

// Migrations returns the migrations of a dialect for a table, oldest first.
func Migrations(dialect Dialect, table string) ([]Migration, error) {
	if err := CheckTable(table); err != nil {
		return nil, err
	}
	if dialect != Postgres && dialect != MySQL {
		return nil, fmt.Errorf("dialect %q: postgres or mysql", dialect)
	}
	entries, err := files.ReadDir(string(dialect))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	_, name := Split(table)
	names := strings.NewReplacer(fileTable, table, DefaultTable, name)
	migrations := make([]Migration, len(entries))
	for i, entry := range entries {
		text, err := files.ReadFile(path.Join(string(dialect), entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		m := Migration{Version: int64(i + 1), Name: entry.Name(), SQL: names.Replace(string(text))}
		head, rest, _ := strings.Cut(m.SQL, "-- +goose Up\n")
		m.Up, m.Down, _ = strings.Cut(rest, "-- +goose Down\n")
		m.Atomic = dialect == Postgres && !strings.Contains(head, "-- +goose NO TRANSACTION")
		head = strings.ReplaceAll(head, "-- +goose NO TRANSACTION\n\n", "")
		m.Up = head + strings.TrimLeft(m.Up, "\n")
		m.Down = strings.TrimLeft(m.Down, "\n")
		migrations[i] = m
	}
	return migrations, nil
}

// Up returns the statements that make the tables, oldest first, to be run one
// at a time. They do not record which of them were run.
func Up(dialect Dialect, table string) ([]string, error) {
	migrations, err := Migrations(dialect, table)
	if err != nil {
		return nil, err
	}
	var statements []string
	for _, m := range migrations {
		statements = append(statements, Statements(m.Up)...)
	}
	return statements, nil
}

// Statements cuts SQL at the semicolons that end a line, and removes its comments.
func Statements(text string) []string {
	var statements []string
	var statement strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "--") {
			continue
		}
		if before, ends := strings.CutSuffix(line, ";\n"); ends {
			statements = append(statements, statement.String()+before)
			statement.Reset()
			continue
		}
		statement.WriteString(line)
	}
	return statements
}
