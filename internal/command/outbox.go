package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// databasePatience is how long a database may take to answer first.
const databasePatience = 10 * time.Second

type outboxCommands struct {
	Migrate migrateCommands      `cmd:"" help:"Make, change or show the tables of an outbox."`
	List    outboxListCommand    `cmd:"" help:"List rows: those that are pending, and how the others ended."`
	Show    outboxShowCommand    `cmd:"" help:"Show all rows of a message."`
	Redrive outboxRedriveCommand `cmd:"" help:"Try refused messages again."`
	Audit   outboxAuditCommand   `cmd:"" help:"Put back messages that Redis has lost, and remove those that have ended."`
	Adopt   outboxAdoptCommand   `cmd:"" help:"Make the rows of a queue belong to this Redis."`
}

// outboxFlags name outboxes of the configuration.
type outboxFlags struct {
	fileFlag
	outputFlag
	Name string `placeholder:"NAME" help:"The outbox, if the configuration names several. Default: all of them."`
}

// load returns the configuration, and the names of the outboxes that are meant.
func (f outboxFlags) load(p *program) (*config.Config, []string, error) {
	cfg, err := loadConfig(p, f.Config)
	if err != nil {
		return nil, nil, err
	}
	names := slices.Sorted(maps.Keys(cfg.Outbox))
	switch {
	case len(names) == 0:
		return nil, nil, usagef("%s has no section outbox", f.Config)
	case f.Name != "":
		return cfg, []string{f.Name}, isKnown("outbox", f.Name, f.Config, cfg.Outbox)
	}
	return cfg, names, nil
}

// openOutbox connects to an outbox and checks that it is fit.
func openOutbox(ctx context.Context, name, file string, cfg config.Outbox) (*table.Database, error) {
	db, err := table.Open(table.Config{Dialect: cfg.Driver, Source: cfg.Source(), Table: cfg.Table})
	if err != nil {
		return nil, badDSN(name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, databasePatience)
	defer cancel()
	err = db.Check(ctx)
	if err == nil {
		return db, nil
	}
	_ = db.Close() // Nothing is pending.
	if !table.IsUnfit(err) {
		return nil, databaseAway(name, err)
	}
	return nil, &failure{
		code: "unfit", exit: exitFailed, text: fmt.Sprintf("outbox %s: %v", name, err), cause: err,
		hint: "`bridge outbox migrate status --config " + quote(file) + "` shows what is there",
	}
}

func badDSN(name string, err error) error {
	return &failure{code: "config", exit: exitUsage, text: fmt.Sprintf("outbox %s: %v", name, err), cause: err}
}

func databaseAway(name string, err error) error {
	return &failure{
		code: "unavailable", exit: exitFailed, text: fmt.Sprintf("outbox %s: database does not answer: %v", name, err), cause: err,
	}
}

// eachOutbox runs a command on the outboxes that the flags name.
func (f outboxFlags) eachOutbox(p *program, run func(name string, db *table.Database) error) error {
	cfg, names, err := f.load(p)
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(names) > 1 && !f.json() {
			if _, err := fmt.Fprintf(p.stdout, "outbox %s:\n", name); err != nil {
				return err
			}
		}
		if err := f.withOutbox(p, name, cfg.Outbox[name], run); err != nil {
			return err
		}
	}
	return nil
}

func (f outboxFlags) withOutbox(p *program, name string, cfg config.Outbox, run func(string, *table.Database) error) error {
	db, err := openOutbox(p.ctx, name, f.Config, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // Nothing is pending.
	return run(name, db)
}

// entryJSON is a row as programs see it.
type entryJSON struct {
	Outbox string `json:"outbox"`
	// Row is the revision.
	Row        int64  `json:"row"`
	ID         string `json:"id"`
	Key        string `json:"key"`
	Queue      string `json:"queue"`
	Topic      string `json:"topic"`
	Verb       string `json:"verb"`
	DueAt      string `json:"due_at,omitempty"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	CreatedAt  string `json:"created_at,omitempty"`
	FinishedAt string `json:"finished_at,omitempty"`
	// Bytes are those of headers and body.
	Age   float64 `json:"age_s"`
	Bytes int64   `json:"bytes"`
}

func entryToJSON(name string, e *table.Entry) entryJSON {
	return entryJSON{
		Outbox: name, Row: e.Number, ID: e.ID, Key: e.Key, Queue: e.Queue, Topic: e.Topic, Verb: e.Verb, DueAt: operate.Stamp(e.DueAt),
		State: e.State, Reason: e.Reason, CreatedAt: operate.Stamp(e.CreatedAt), FinishedAt: operate.Stamp(e.FinishedAt),
		Age: e.Age.Seconds(), Bytes: e.Size,
	}
}

// dash is a time for a table.
func dash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return formatTime(t)
}
