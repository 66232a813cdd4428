package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type recurringCommands struct {
	Set    recurringSetCommand    `cmd:"" help:"Create or replace a recurring schedule."`
	List   recurringListCommand   `cmd:"" help:"List recurring schedules."`
	Show   recurringShowCommand   `cmd:"" help:"Show a recurring schedule."`
	Pause  recurringPauseCommand  `cmd:"" help:"Let a recurring schedule not fire until it is resumed."`
	Resume recurringResumeCommand `cmd:"" help:"Resume a recurring schedule."`
	Delete recurringDeleteCommand `cmd:"" help:"Delete a recurring schedule."`
}

// recurringFlags name a recurring schedule.
type recurringFlags struct {
	queueFlags
	Name string `arg:"" help:"The name of the recurring schedule."`
}

type recurringSetCommand struct {
	recurringFlags
	Cron    string    `required:"" placeholder:"EXPRESSION" help:"Five fields (minute, hour, day of the month, month, day of the week), @hourly and the like, or @every 90s."`
	Zone    string    `placeholder:"ZONE" help:"The IANA time zone whose local time the expression means, such as Europe/Berlin. Default: UTC."`
	Topic   string    `required:"" placeholder:"TOPIC" help:"Where to publish: a Kafka topic, a RabbitMQ routing key, a NATS subject."`
	Key     string    `placeholder:"KEY" help:"Messages of one key are published in due order; on Kafka the record's key."`
	Header  []string  `sep:"none" placeholder:"NAME=VALUE" help:"A header of the messages; may be repeated."`
	Tag     []string  `sep:"none" placeholder:"TAG" help:"A label by which to find and change messages together; may be repeated."`
	Late    lateFlags `embed:""`
	Missed  string    `enum:"skip,once,catch_up" default:"skip" placeholder:"skip|once|catch_up" help:"What becomes of firings that nobody planned in time: they are left out, the latest is published at once, or the latest up to --catch-up are."`
	CatchUp int       `placeholder:"N" help:"With --missed catch_up, how many: 1 to 100."`
	Jitter  *span     `placeholder:"DURATION" help:"Delays each firing by up to this, always by the same: at most 1h and the shortest interval between firings."`
	Until   *instant  `placeholder:"TIME" help:"When the last firing may be, RFC 3339. Default: no end."`
	Body    string    `arg:"" optional:"" help:"The body of the messages."`
}

func (recurringSetCommand) Help() string {
	return `Each firing is an ordinary message with the id NAME@2026-11-26T20:00:00Z. If a schedule of that name exists, it is replaced,
and its firings that are not due yet are cancelled; an equal one stays as it is, and a paused one stays paused.

Example:

    bridge recurring set daily-report --config bridge.yaml --queue orders --topic report.make \
        --cron '0 20 * * MON-FRI' --zone Europe/Berlin '{"kind": "daily"}'`
}

func (c recurringSetCommand) Run(p *program) error {
	headers, err := parseHeaders(c.Header)
	if err != nil {
		return err
	}
	asked := operate.Recurring{
		Cron: c.Cron, Zone: c.Zone, Topic: c.Topic, Key: c.Key, Headers: headers, Tags: c.Tag, Body: c.Body, Missed: c.Missed, CatchUp: c.CatchUp,
		Until: operate.Stamp(c.Until.time()),
	}
	if late := c.Late.late(); late.Then != "" {
		asked.Late = &operate.Late{After: late.After.String(), Then: string(late.Then)}
	}
	if c.Jitter != nil {
		asked.Jitter = time.Duration(*c.Jitter).String()
	}
	return c.change(p, "set recurring", func(s *session) (operate.RecurringState, error) {
		state, err := s.SetRecurring(s.ctx, c.Name, &asked)
		if !errors.Is(err, delay.ErrNoLayout) {
			return state, err
		}
		if err := s.ensureLayout(); err != nil { // It is the first to use the queue.
			return state, err
		}
		return s.SetRecurring(s.ctx, c.Name, &asked)
	})
}

type recurringPauseCommand struct{ recurringFlags }

func (recurringPauseCommand) Help() string {
	return `Its firings that are not due yet are cancelled. What it would fire during the pause is not made up for.`
}

func (c recurringPauseCommand) Run(p *program) error {
	return c.change(p, "pause recurring", func(s *session) (operate.RecurringState, error) { return s.PauseRecurring(s.ctx, c.Name, by()) })
}

type recurringResumeCommand struct{ recurringFlags }

func (c recurringResumeCommand) Run(p *program) error {
	return c.change(p, "resume recurring", func(s *session) (operate.RecurringState, error) { return s.ResumeRecurring(s.ctx, c.Name) })
}

type recurringDeleteCommand struct{ recurringFlags }

func (recurringDeleteCommand) Help() string {
	return `Its firings that are not due yet are cancelled. Exit code 3: there is none of that name.`
}

func (c recurringDeleteCommand) Run(p *program) error {
	return c.changing(p, inspect.Change{Action: "delete recurring", What: c.Name}, func(s *session, _ *inspect.Change) error {
		deleted, err := s.DeleteRecurring(s.ctx, c.Name)
		switch {
		case err != nil:
			return c.failed(s, "delete", err)
		case deleted.NotDurable:
			s.warnNotDurable("delete recurring", c.Name)
		}
		if s.asJSON {
			return writeJSON(p.stdout, deleted)
		}
		_, err = fmt.Fprintf(p.stdout, "deleted %s\n", c.Name)
		return err
	})
}

// change changes a recurring schedule, and prints it.
func (f recurringFlags) change(p *program, action string, do func(*session) (operate.RecurringState, error)) error {
	made := inspect.Change{Action: action, What: f.Name}
	return f.changing(p, made, func(s *session, made *inspect.Change) error {
		state, err := do(s)
		if err != nil {
			return f.failed(s, action, err)
		}
		made.Topic = state.Topic
		if state.NotDurable {
			s.warnNotDurable(action, f.Name)
		}
		return s.printRecurring(&state)
	})
}

// failed says what was done to which schedule.
func (f recurringFlags) failed(s *session, verb string, err error) error {
	if known := explain(err); known.code == "not_found" {
		return &failure{code: known.code, exit: known.exit, id: f.Name, text: fmt.Sprintf("there is no recurring schedule %q in queue %s", f.Name, s.Name)}
	}
	return s.fail(verb, f.Name, err)
}

// printRecurring prints a schedule in a line, or as JSON.
func (s *session) printRecurring(r *operate.RecurringState) error {
	if s.asJSON {
		return writeJSON(s.program.stdout, r)
	}
	text := "no firing follows"
	switch {
	case r.Paused:
		text = fmt.Sprintf("paused since %s by %s", r.PausedAt, r.PausedBy)
	case r.Next != "":
		text = "next firing " + stamped(r.Next, s.Store.Now())
	}
	_, err := fmt.Fprintf(s.program.stdout, "%s: %s\n", r.Name, text)
	return err
}

type recurringListCommand struct{ queueFlags }

func (c recurringListCommand) Run(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	all, err := s.Recurrings(s.ctx)
	if err != nil {
		return s.fail("list recurring schedules of", "", err)
	}
	list := c.listing(p.stdout, "NAME", "CRON", "ZONE", "TOPIC", "NEXT", "SCHEDULED", "SKIPPED", "+PAUSED", "+BY")
	for i := range all {
		r := &all[i]
		if err := list.row(func() any { return r }, r.Name, r.Cron, cmp.Or(r.Zone, "UTC"), r.Topic, nextFiring(r, s.Store.Now()), r.Scheduled, r.Skipped, cmp.Or(r.PausedAt, "-"), cmp.Or(r.PausedBy, "-")); err != nil {
			return err
		}
	}
	return list.end(nil, "no recurring schedules in queue %s", s.Name)
}

// nextFiring is what a list says of the next firing.
func nextFiring(r *operate.RecurringState, now time.Time) string {
	if r.Paused {
		return "paused"
	}
	return cmp.Or(stamped(r.Next, now), "-")
}

type recurringShowCommand struct {
	recurringFlags
	WithBody bool `name:"body" help:"Show the body of the messages, too."`
}

func (c recurringShowCommand) Run(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	state, err := s.Recurring(s.ctx, c.Name, c.WithBody)
	if err != nil {
		return c.failed(s, "show", err)
	}
	if s.asJSON {
		return writeJSON(p.stdout, &state)
	}
	return describeRecurring(p.stdout, &state, s.Store.Now())
}

// describeRecurring writes a schedule for people, a field a line.
func describeRecurring(w io.Writer, r *operate.RecurringState, now time.Time) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := liner(tabs)
	line("name", r.Name)
	line("queue", r.Queue)
	line("cron", r.Cron)
	line("zone", cmp.Or(r.Zone, "UTC"))
	line("topic", r.Topic)
	line("key", r.Key)
	line("missed", r.Missed)
	if r.CatchUp > 0 {
		line("catch up", fmt.Sprint(r.CatchUp))
	}
	line("jitter", r.Jitter)
	line("until", stamped(r.Until, now))
	if r.Late != nil {
		line("late", strings.TrimSpace(r.Late.Then+" "+r.Late.After))
	}
	line("tags", strings.Join(r.Tags, " "))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		line("header", name+": "+r.Headers[name])
	}
	line("set", stamped(r.SetAt, now))
	if r.Paused {
		line("paused", stamped(r.PausedAt, now)+" by "+r.PausedBy)
	}
	line("next", stamped(r.Next, now))
	line("scheduled", fmt.Sprint(r.Scheduled))
	line("skipped", fmt.Sprint(r.Skipped))
	if err := tabs.Flush(); err != nil || r.Body == "" && r.BodyBase64 == "" {
		return err
	}
	text := printable([]byte(r.Body))
	if r.BodyBase64 != "" {
		text = "(base64) " + r.BodyBase64
	}
	_, err := fmt.Fprintf(w, "\n%s\n", text)
	return err
}
