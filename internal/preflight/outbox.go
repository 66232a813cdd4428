package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// outbox looks at one database.
func (f *Flight) outbox(ctx context.Context, cfg config.Outbox) []check.Finding {
	db, err := table.Open(table.Config{Dialect: cfg.Driver, Source: cfg.Source(), Table: cfg.Table, Connections: 2})
	if err != nil {
		return []check.Finding{badDSN(err)}
	}
	defer func() { _ = db.Close() }() // Nothing is pending.
	findings := db.Findings(ctx)
	for i := range findings {
		if findings[i].Code == "outbox_schema" {
			findings[i].What += version(ctx, cfg)
		}
	}
	return append(findings, f.lives(ctx, db)...)
}

// lives are the queues whose rows belong to another Redis. What does not answer, others tell.
func (f *Flight) lives(ctx context.Context, db *table.Database) (findings []check.Finding) {
	for _, name := range slices.Sorted(maps.Keys(f.config.Queues)) {
		rows, err := db.Lives().Of(ctx, name)
		if err != nil || rows.Name == "" {
			continue
		}
		layout, err := store.New(f.rdb, f.config.Prefix, name).LoadLayout(ctx)
		if err != nil || layout.Life() == rows.Name {
			continue
		}
		findings = append(findings, check.Finding{
			Level: check.Error, Code: "outbox_other_redis",
			What:   fmt.Sprintf("the rows of queue %s belong to another Redis, whose bridges were there %s ago", name, rows.Silent.Round(time.Second)),
			Why:    "this bridge takes none of them",
			Remedy: "correct redis or prefix, or, once the bridges of the other Redis have stopped, bridge outbox adopt --config FILE --queue " + name,
		})
	}
	return findings
}

// version is how far the tables are, as a text behind another; empty if nobody
// has recorded it.
func version(ctx context.Context, cfg config.Outbox) string {
	db, err := cfg.Source().Open(cfg.Driver)
	if err != nil {
		return ""
	}
	defer func() { _ = db.Close() }() // Nothing is pending.
	m, err := migrate.New(db, cfg.Driver, cfg.Table)
	if err != nil {
		return ""
	}
	steps, err := m.Status(ctx)
	if err != nil {
		return ""
	}
	var missing []string
	for _, step := range steps {
		if step.AppliedAt.IsZero() {
			missing = append(missing, step.Name)
		}
	}
	return fmt.Sprintf(" (not applied: %s)", strings.Join(missing, ", "))
}

func badDSN(err error) check.Finding {
	return check.Finding{
		Level: check.Error, Code: "outbox_dsn",
		What:   "dsn " + strings.TrimPrefix(err.Error(), "dsn "),
		Why:    "the database cannot be asked",
		Remedy: "correct outbox.dsn, or the file that outbox.dsn_file names",
	}
}
