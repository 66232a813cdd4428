package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
)

// migratePatience is how long a migration may take.
const migratePatience = 10 * time.Minute

type migrateCommands struct {
	Up     migrateUpCommand     `cmd:"" help:"Make the tables, or bring them up to date."`
	Down   migrateDownCommand   `cmd:"" help:"Undo the newest migration; undoing the first drops the tables with all rows."`
	Status migrateStatusCommand `cmd:"" help:"Show which migrations were applied."`
	Print  migratePrintCommand  `cmd:"" help:"Print the SQL, for another tool to run."`
}

type migrateUpCommand struct{ outboxFlags }

func (migrateUpCommand) Help() string {
	return `Does nothing if all is done, and may run beside bridges and producers. The bridge itself never changes a table. The table
<table>_migrations records what was applied.

Example:

    bridge outbox migrate up --config bridge.yaml`
}

func (c migrateUpCommand) Run(p *program) error {
	return c.each(p, func(ctx context.Context, m *migrate.Migrator, o migrationTarget) error {
		steps, err := m.Up(ctx)
		for _, step := range steps {
			if err := o.tell(p, c.json(), step, "applied"); err != nil {
				return err
			}
		}
		if err == nil && len(steps) == 0 && !c.json() {
			_, err = fmt.Fprintf(p.stdout, "table %s is up to date\n", o.table)
		}
		return err
	})
}

type migrateDownCommand struct {
	outboxFlags
	Force bool `help:"Even if unpublished messages are lost."`
}

func (migrateDownCommand) Help() string {
	return `Stop the bridge and the producers first. If the table has unpublished messages, it does nothing without --force.

Example:

    bridge outbox migrate down --config bridge.yaml`
}

func (c migrateDownCommand) Run(p *program) error {
	return c.each(p, func(ctx context.Context, m *migrate.Migrator, o migrationTarget) error {
		steps, err := m.Down(ctx, c.Force)
		if errors.Is(err, migrate.ErrPending) {
			return &failure{
				code: "pending", exit: exitRefused, text: err.Error(), cause: err,
				hint: "--force deletes them",
			}
		}
		for _, step := range steps {
			if err := o.tell(p, c.json(), step, "taken back"); err != nil {
				return err
			}
		}
		if err == nil && len(steps) == 0 && !c.json() {
			_, err = fmt.Fprintf(p.stdout, "table %s has nothing to take back\n", o.table)
		}
		return err
	})
}

type migrateStatusCommand struct{ outboxFlags }

func (migrateStatusCommand) Help() string {
	return `Changes nothing.

Example:

    bridge outbox migrate status --config bridge.yaml`
}

func (c migrateStatusCommand) Run(p *program) error {
	return c.each(p, func(ctx context.Context, m *migrate.Migrator, o migrationTarget) error {
		steps, err := m.Status(ctx)
		for _, step := range steps {
			state := "missing"
			if !step.AppliedAt.IsZero() {
				state = "applied"
			}
			if err := o.tell(p, c.json(), step, state); err != nil {
				return err
			}
		}
		return err
	})
}

type migratePrintCommand struct {
	Dialect string `required:"" enum:"postgres,mysql" placeholder:"postgres|mysql" help:"The kind of database; mysql also means MariaDB."`
	Table   string `default:"${outbox_table}" placeholder:"TABLE" help:"Name of the table, ${outbox_table} by default."`
	Down    bool   `help:"Print the SQL that drops the tables."`
}

func (migratePrintCommand) Help() string {
	return `Needs no configuration. If another tool runs the SQL, let it also run that of each later version.

Example:

    bridge outbox migrate print --dialect postgres | psql mydatabase`
}

func (c migratePrintCommand) Run(p *program) error {
	migrations, err := schema.Migrations(schema.Dialect(c.Dialect), c.Table)
	if err != nil {
		return usagef("%v", err)
	}
	if c.Down {
		slices.Reverse(migrations)
	}
	for _, m := range migrations {
		text := m.Up
		if c.Down {
			text = m.Down
		}
		if _, err := fmt.Fprint(p.stdout, text); err != nil {
			return err
		}
	}
	return nil
}

// migrationTarget is an outbox that is being migrated.
type migrationTarget struct{ name, table string }

// stepJSON is a migration as programs see it.
type stepJSON struct {
	Outbox    string `json:"outbox"`
	Table     string `json:"table"`
	Version   int64  `json:"version"`
	Name      string `json:"name"`
	State     string `json:"state"`
	AppliedAt string `json:"applied_at,omitempty"`
}

// tell writes one migration.
func (o migrationTarget) tell(p *program, asJSON bool, step migrate.Step, state string) error {
	if asJSON {
		return writeJSON(p.stdout, stepJSON{o.name, o.table, step.Version, step.Name, strings.ReplaceAll(state, " ", "_"), operate.Stamp(step.AppliedAt)})
	}
	at := ""
	if !step.AppliedAt.IsZero() {
		at = " " + formatTime(step.AppliedAt)
	}
	_, err := fmt.Fprintf(p.stdout, "table %s: %s %s%s\n", o.table, step.Name, state, at)
	return err
}

// each connects to the outboxes that the flags name, one after the other.
func (f outboxFlags) each(p *program, run func(context.Context, *migrate.Migrator, migrationTarget) error) error {
	cfg, names, err := f.load(p)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f.migrate(p, name, cfg.Outbox[name], run); err != nil {
			return fmt.Errorf("outbox %s: %w", name, err)
		}
	}
	return nil
}

func (outboxFlags) migrate(p *program, name string, cfg config.Outbox, run func(context.Context, *migrate.Migrator, migrationTarget) error) error {
	db, err := cfg.Source().Open(cfg.Driver)
	if err != nil {
		return badDSN(name, fmt.Errorf("dsn %w", err))
	}
	defer func() { _ = db.Close() }()
	m, err := migrate.New(db, cfg.Driver, cfg.Table)
	if err != nil {
		return err
	}
	m.OnWaiting(func(w migrate.LockWait) {
		_, _ = fmt.Fprintf(p.stderr, "table %s: %s has waited %v for transactions that use the table; producers go on meanwhile: %s\n",
			cfg.Table, w.Step, w.Since.Round(time.Second), w.Statement)
	})
	answer, cancel := context.WithTimeout(p.ctx, databasePatience)
	defer cancel()
	if err := db.PingContext(answer); err != nil {
		return databaseAway(name, err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, migratePatience)
	defer cancel()
	return run(ctx, m, migrationTarget{name, cfg.Table})
}
