package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/importer"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type importCommands struct {
	Asynq  importAsynqCommand  `cmd:"" help:"Move scheduled tasks of asynq."`
	BullMQ importBullMQCommand `cmd:"" name:"bullmq" help:"Move delayed jobs of BullMQ."`
}

// importFlags say what messages are made, and of how many.
type importFlags struct {
	queueFlags
	TopicMap   map[string]string `mapsep:"none" placeholder:"NAME=TOPIC" help:"The topic for that type of tasks or name of jobs; may be repeated. Without --topic, others stay."`
	Topic      string            `placeholder:"TOPIC" help:"The topic for all others."`
	IDPrefix   string            `name:"id-prefix" placeholder:"TEXT" help:"Put before each id."`
	KeyPattern *pattern          `placeholder:"REGEXP" help:"Finds the message's key in the old id: what its first group matches, as ^([^/]+)/ in order-42/timeout. Default: no key."`
	Limit      int64             `placeholder:"N" help:"Move at most that many."`
	DryRun     bool              `help:"Only read, and say what would be moved and what not."`
}

// importRedisFlags say where the other system is.
type importRedisFlags struct {
	importFlags
	From string `env:"DELAYBRIDGE_IMPORT_FROM" placeholder:"URL" help:"The Redis of the other system, as redis://user:password@host:6379/0. Default: that of the configuration."`
}

// pattern is a regular expression with a group.
type pattern struct{ *regexp.Regexp }

// UnmarshalText reads a flag.
func (r *pattern) UnmarshalText(text []byte) (err error) {
	if r.Regexp, err = regexp.Compile(string(text)); err != nil {
		return err
	}
	if r.NumSubexp() == 0 {
		return fmt.Errorf("%q has no group: put the key in parentheses", text)
	}
	return nil
}

const importHelp = `Reads what waits, schedules a message for each, and deletes it there, in batches. It may be broken off at any
moment and run again, with the same --queue: what it had in hand it finishes, and no message is made twice. What is
cancelled there meanwhile is cancelled here, too. Messages have the due time that they had there; what was due already
is published at once. What does not fit, or has no counterpart here, stays where it is, and is listed.

At the end it counts both sides. Exit code 3: something stays, or the counts do not agree.
`

type importAsynqCommand struct {
	importRedisFlags
	AsynqQueue string   `default:"default" placeholder:"NAME" help:"The queue of asynq."`
	GiveUp     []string `enum:"unique,retention,retry" placeholder:"unique,retention,retry" help:"Move also tasks that are unique, retained, or to be tried again, and lose that."`
}

func (importAsynqCommand) Help() string {
	return importHelp + `
Example:

    bridge import asynq --config bridge.yaml --queue orders --topic-map order:timeout=order.timeout --dry-run`
}

func (c importAsynqCommand) Run(p *program) error {
	return c.run(p, c.GiveUp, "task", func(rdb redis.UniversalClient, maxSize int) importer.Origin {
		return importer.Asynq(rdb, c.AsynqQueue, slices.Contains(c.GiveUp, string(importer.NeedsRetries)), maxSize)
	})
}

type importBullMQCommand struct {
	importRedisFlags
	BullMQQueue string   `name:"bullmq-queue" required:"" placeholder:"NAME" help:"The queue of BullMQ."`
	Prefix      string   `default:"bull" placeholder:"TEXT" help:"The prefix of BullMQ's keys."`
	GiveUp      []string `enum:"deduplication,retry" placeholder:"deduplication,retry" help:"Move also jobs that have a deduplication id, or are to be tried again, and lose that."`
}

func (importBullMQCommand) Help() string {
	return importHelp + `
Example:

    bridge import bullmq --config bridge.yaml --queue orders --bullmq-queue orders --topic order.timeout --id-prefix orders/`
}

func (c importBullMQCommand) Run(p *program) error {
	return c.run(p, c.GiveUp, "job", func(rdb redis.UniversalClient, maxSize int) importer.Origin {
		return importer.BullMQ(rdb, c.Prefix, c.BullMQQueue, maxSize)
	})
}

// run opens both sides, and imports. noun is what the other system calls an item.
func (c importRedisFlags) run(p *program, giveUp []string, noun string, open func(redis.UniversalClient, int) importer.Origin) error {
	if c.Limit < 0 {
		return usagef("--limit %d: give 1 or more; 0, the default, is no limit", c.Limit)
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	rdb := s.rdb
	if c.From != "" {
		if rdb, err = openFrom(s.ctx, c.From); err != nil {
			return err
		}
		defer func() { _ = rdb.Close() }() // Nothing is pending.
	}
	return c.importAll(s, giveUp, noun, open(rdb, int(s.config.MaxMessage)))
}

// openFrom connects to the other system's Redis.
func openFrom(ctx context.Context, url string) (redis.UniversalClient, error) {
	from := config.Redis{Mode: config.Standalone, URL: url, DialTimeout: connectPatience / 2, Timeout: connectPatience / 2}
	rdb, err := from.Open("import")
	if err != nil {
		return nil, usagef("--from: %s", config.MaskURLs(err.Error()))
	}
	if err := connect(ctx, rdb, serverName(from)); err != nil {
		_ = rdb.Close() // It was of no use.
		return nil, err
	}
	return rdb, nil
}

// importAll imports from an origin, and tells what came of it.
func (c importFlags) importAll(s *session, giveUp []string, noun string, origin importer.Origin) error {
	s.silent.Stop() // Each call has a limit of its own.
	if !c.DryRun {
		if err := s.ensureLayout(); err != nil {
			return s.fail("import to", "", err)
		}
	}
	progress := newProgressBar(s.program.stderr, s.Name, noun)
	im := importer.New(importer.Options{
		Queue: s.Queue, Origin: origin, Rules: c.rules(s, giveUp), DryRun: c.DryRun, Limit: c.Limit,
		Progress: func(looked int64, r *importer.Report) {
			progress.show(looked, max(looked, r.Before.Waiting), fmt.Sprintf("%d moved", r.Moved))
		},
	})
	r, err := im.Run(s.ctx)
	progress.end()
	if r.Moved+r.Cancelled > 0 && !c.DryRun {
		answer := operate.Tally{"moved": int(r.Moved), "cancelled": int(r.Cancelled)}
		writeDown(s.program, s.asJSON, s.Store, &inspect.Change{Action: "import", Answer: answer.String()})
	}
	if errors.Is(err, importer.ErrNoQueue) {
		return usagef("%v", err)
	}
	text := &importText{Report: r, noun: noun, queue: s.Name, isDry: c.DryRun, hasFailed: err != nil}
	if printed := text.print(s); printed != nil {
		return printed
	}
	if err != nil {
		return s.fail("import to", "", err)
	}
	return text.verdict()
}

// rules are what the flags and the queue's configuration say.
func (c importFlags) rules(s *session, giveUp []string) importer.Rules {
	r := importer.Rules{
		Topics: c.TopicMap, Topic: c.Topic, Prefix: c.IDPrefix,
		Sink: s.sink, MaxMessage: int(s.config.MaxMessage), Accepted: message.Topics(s.config.Topics),
	}
	if c.KeyPattern != nil {
		r.Key = c.KeyPattern.Regexp
	}
	for _, need := range giveUp {
		r.GiveUp = append(r.GiveUp, importer.Reason(need))
	}
	return r
}

// importText tells people and programs what came of an import.
type importText struct {
	*importer.Report
	noun, queue      string
	isDry, hasFailed bool
}

// importJSON is a report as programs see it.
type importJSON struct {
	Queue  string           `json:"queue"`
	DryRun bool             `json:"dry_run"`
	Before int64            `json:"waiting_before"`
	After  *int64           `json:"waiting_after,omitempty"`
	Held   int64            `json:"held_after"`
	Moved  int64            `json:"moved"`
	Found  *int64           `json:"found,omitempty"`
	Missed []string         `json:"missing"`
	Gone   int64            `json:"cancelled"`
	Late   []string         `json:"cancelled_late"`
	Left   []importLeft     `json:"left"`
	Kinds  map[string]int64 `json:"by_type"`
	Days   map[string]int64 `json:"by_day"`
	Notes  []string         `json:"notes"`
}

// importLeft is what stays for one reason.
type importLeft struct {
	Reason   importer.Reason    `json:"reason"`
	Count    int64              `json:"count"`
	Examples []importer.Example `json:"examples"`
}

func (t *importText) view() importJSON {
	v := importJSON{
		Queue: t.queue, DryRun: t.isDry, Before: t.Before.Waiting, Held: t.After.Held, Moved: t.Moved, Missed: append([]string{}, t.Missing...),
		Gone: t.Cancelled, Late: append([]string{}, t.LateIDs...), Left: t.left(), Kinds: t.ByKind, Days: t.ByDay, Notes: append([]string{}, t.Notes...),
	}
	if !t.hasFailed {
		v.After = &t.After.Waiting
	}
	if !t.isDry {
		v.Found = &t.Found
	}
	return v
}

// left is what stays, by the names of the reasons.
func (t *importText) left() []importLeft {
	list := []importLeft{}
	for _, reason := range slices.Sorted(maps.Keys(t.Left)) {
		list = append(list, importLeft{reason, t.Left[reason].Count, t.Left[reason].Examples})
	}
	return list
}

func (t *importText) print(s *session) error {
	if s.asJSON {
		return writeJSON(s.program.stdout, t.view())
	}
	tabs := tabwriter.NewWriter(s.program.stdout, 0, 0, 2, ' ', 0)
	line := func(what string, n int64, note string) { // Flush has the error.
		_, _ = fmt.Fprintf(tabs, "%s\t%d\t%s\n", what, n, note)
	}
	line("waiting before", t.Before.Waiting, heldNote(t.Before.Held, "by an import that was broken off"))
	moved := "moved"
	if t.isDry {
		moved = "would be moved"
	}
	line(moved, t.Moved, "")
	for _, kind := range slices.Sorted(maps.Keys(t.ByKind)) {
		line("  "+printableLine(kind), t.ByKind[kind], "")
	}
	days := slices.Sorted(maps.Keys(t.ByDay))
	for i, day := range days {
		if i == mostDays {
			_, _ = fmt.Fprintf(tabs, "  and %s more\t\t\n", count(len(days)-i, "day"))
			break
		}
		line("  "+day, t.ByDay[day], "")
	}
	for _, left := range t.left() {
		line("stays: "+string(left.Reason), left.Count, examples(left.Examples))
	}
	if t.Cancelled > 0 {
		line("cancelled meanwhile", t.Cancelled, lateNote(t.Late, t.LateIDs))
	}
	if !t.hasFailed && !t.isDry {
		line("waiting now", t.After.Waiting, heldNote(t.After.Held, "by this import"))
		line("found in queue "+t.queue, t.Found, "")
	}
	for _, text := range t.Notes {
		_, _ = fmt.Fprintf(tabs, "note: %s\n", text)
	}
	return tabs.Flush()
}

// mostDays is how many days a person is shown.
const mostDays = 14

func heldNote(n int64, by string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("and %d held %s", n, by)
}

func lateNote(n int64, ids []string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of them too late, the message may have been published: %s", n, strings.Join(printables(ids), ", "))
}

func printables(ids []string) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = printableLine(id)
	}
	return list
}

// examples names a few of what stays.
func examples(list []importer.Example) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = printableLine(e.ID)
		if e.Detail != "" {
			parts[i] += ": " + printableLine(e.Detail)
		}
	}
	return strings.Join(parts, "; ")
}

// verdict fails if something stays, or the counts do not agree.
func (t *importText) verdict() error {
	differs := t.Unaccounted()
	switch {
	case t.isDry:
		return nil
	case t.Found != t.Moved:
		text := fmt.Sprintf("%d of %d moved are not in queue %s, though not due: %s: cancelled there, or lost",
			t.Moved-t.Found, t.Moved, t.queue, strings.Join(printables(t.Missing), ", "))
		return &failure{code: "counts_differ", exit: exitRefused, text: text}
	case differs != 0:
		text := fmt.Sprintf("%d more wait there than this import accounts for: others were at work meanwhile", differs)
		if differs < 0 {
			text = fmt.Sprintf("%d fewer wait there than this import accounts for: others were at work meanwhile", -differs)
		}
		return &failure{code: "counts_differ", exit: exitRefused, text: text, hint: "run it again when the other system is at rest"}
	case t.LeftAll() > 0:
		return &failure{code: "not_all_moved", exit: exitRefused, text: count(int(t.LeftAll()), t.noun) + " not moved"}
	}
	return nil
}
