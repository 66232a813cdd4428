package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/sizing"
)

type sizeCommand struct {
	outputFlag
	Rate     perSecond  `required:"" placeholder:"N/s" help:"Messages scheduled a second, on average: 1000/s."`
	Delay    span       `required:"" placeholder:"DURATION" help:"How long a message waits, on average: 30m, 7d."`
	Body     volume     `default:"256" placeholder:"BYTES" help:"Size of a body: bytes, or with a unit, as 2KiB. Default: 256."`
	ID       int        `name:"id" default:"26" placeholder:"BYTES" help:"Length of an id, and of its key. Default: 26."`
	Headers  volume     `default:"0" placeholder:"BYTES" help:"Size of a message's own headers, names and values. Default: 0."`
	Peak     *perSecond `placeholder:"N/s" help:"Most messages scheduled, or due, in one second. Default: the rate."`
	Outage   span       `default:"1h" placeholder:"DURATION" help:"How long the broker may be away while messages are accepted. Default: 1h."`
	Replicas int        `default:"0" placeholder:"N" help:"Replicas of each primary of Redis. Default: 0."`
	Outbox   bool       `help:"Messages are rows of a database first."`
	Horizon  *span      `placeholder:"DURATION" help:"The outbox' horizon. Default: 1h, as in the configuration."`
	Keep     *span      `placeholder:"DURATION" help:"How long the outbox keeps a row after its end. Default: 24h, as in the configuration."`
}

func (sizeCommand) Help() string {
	return `Says how large Redis, its disk, the tables of an outbox and the bridge must be for a load, from constants that were measured. It prints them, where they
are from, and what they leave out. It connects to nothing. Memory is what a real Redis takes, within a few percent; times are those of another machine.

Example:

    bridge size --rate 1000/s --delay 30m
    bridge size --rate 200/s --delay 7d --body 2KiB --outage 4h --replicas 1 --outbox --keep 2h`
}

func (c sizeCommand) Run(p *program) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	sizes, err := sizing.Of(plan)
	switch {
	case err != nil:
		return usagef("--%s", err)
	case c.json():
		return writeJSON(p.stdout, sizeJSON{sizes, sizing.Constants(), sizing.Machine, sizing.Unknown})
	}
	return c.print(p.stdout, sizes)
}

// sizeJSON is the JSON form of the answer.
type sizeJSON struct {
	*sizing.Sizes

	Constants []sizing.Constant `json:"constants"`
	Machine   string            `json:"machine"`
	Unknown   []string          `json:"unknown"`
}

// The defaults of an outbox' configuration.
const (
	usualHorizon = time.Hour
	usualKeep    = day
)

func (c sizeCommand) plan() (sizing.Plan, error) {
	plan := sizing.Plan{
		Rate: float64(c.Rate), Delay: time.Duration(c.Delay), Outage: time.Duration(c.Outage),
		ID: c.ID, Headers: int(c.Headers), Body: int(c.Body), Replicas: c.Replicas,
	}
	if c.ID < 1 { // The package takes 0 for the usual length.
		return plan, usagef("--id: %d must be at least 1", c.ID)
	}
	if c.Peak != nil {
		plan.Peak = float64(*c.Peak)
	}
	if !c.Outbox {
		if c.Horizon != nil || c.Keep != nil {
			return plan, usagef("--horizon and --keep are an outbox': give --outbox, too")
		}
		return plan, nil
	}
	plan.Outbox = &sizing.Outbox{Horizon: c.Horizon.or(usualHorizon), Keep: c.Keep.or(usualKeep)}
	return plan, nil
}

// print writes the answer for people: a figure a line, with what it means.
func (c sizeCommand) print(w io.Writer, s *sizing.Sizes) error {
	sheet := &sheet{}
	sheet.title("MESSAGES")
	sheet.line("waiting", fmt.Sprint(s.Waiting), "in Redis: rate × delay, or the horizon if that is shorter")
	sheet.line("waiting at most", fmt.Sprint(s.WaitingMost), "after the broker was away for "+about(time.Duration(c.Outage)))
	sheet.title("REDIS")
	sheet.redis(s)
	sheet.title("REDIS' DISK, with appendonly yes")
	sheet.line("most", inBytes(s.Disk.Most), "during a rewrite: the old file, grown to twice its size, and the new one; as much for each replica")
	sheet.line("appended", inBytes(s.Disk.PerSecond)+"/s", fmt.Sprintf("rewritten every %s, which takes %s", seconds(s.Disk.RewriteEvery), seconds(s.Disk.Rewrite)))
	sheet.line("reload", seconds(s.Replica.Reload), "a restart with the largest file, until Redis answers")
	if c.Replicas > 0 {
		sheet.line("replica", seconds(s.Replica.Sync), "a full copy to one, without the network")
		sheet.line("backlog", inBytes(s.Replica.Backlog), "for repl-backlog-size: a replica that was away for a minute needs no full copy")
	}
	if o := s.Outbox; o != nil {
		sheet.title("OUTBOX")
		sheet.line("rows", fmt.Sprint(o.Rows), "rate × (delay + keep)")
		sheet.line("table", inBytes(o.Bytes), "with its indexes")
		sheet.line("processors", cores(s.CPU.Database), "of the database at the peak, in transactions of one message")
		sheet.line("connections", fmt.Sprint(s.Connections.Database), "of each bridge, at most")
	}
	sheet.title("BRIDGE")
	sheet.line("processors", cores(s.CPU.Bridge), "at the peak, of all bridges together; run two, each of which can do it alone")
	sheet.line("connections", fmt.Sprint(s.Connections.Redis), "of each bridge to each node of Redis, at most")
	sheet.rests()
	_, err := io.WriteString(w, sheet.String())
	return err
}

// sheet is a text of figures.
type sheet struct{ strings.Builder }

func (s *sheet) title(text string) {
	if s.Len() > 0 {
		s.WriteString("\n")
	}
	s.WriteString(text + "\n")
}

func (s *sheet) line(name, value, note string) {
	_, _ = fmt.Fprintf(s, "%-15s  %-11s  %s\n", name, value, note) // It writes into memory.
}

func (s *sheet) redis(sizes *sizing.Sizes) {
	m, servers := sizes.Memory, "one Redis is enough"
	if sizes.Primaries > 1 {
		servers = "a Cluster: each has its part of the figures here"
	}
	s.line("a message", fmt.Sprintf("%.0f B", m.Message), "its id twice, its stored form, and its place in two tables")
	s.line("used", inBytes(m.Used), "used_memory, usually")
	s.line("used at most", inBytes(m.UsedMost), "at the end of an outage")
	s.line("maxmemory", inBytes(m.Maxmemory), "to set, with maxmemory-policy noeviction: a tenth and 32 MiB more")
	s.line("host", inBytes(m.Host), "memory of the machines while Redis, that full, rewrites its file under this load")
	s.line("host at worst", inBytes(m.HostWorst), "if every page is written meanwhile, as transparent huge pages do")
	s.line("budget", inBytes(sizes.Budget), "for queues.*.budget: what the bridge counts for as many messages")
	s.line("shards", fmt.Sprint(sizes.Shards), "for queues.*.shards")
	s.line("primaries", fmt.Sprint(sizes.Primaries), servers)
	stages := fmt.Sprintf("at the peak: schedule %s, claim and settle %s", cores(sizes.CPU.RedisSchedule), cores(sizes.CPU.RedisPublish))
	if sizes.Outbox != nil {
		stages = fmt.Sprintf("at the peak: rows %s, claim and settle %s", cores(sizes.CPU.RedisRows), cores(sizes.CPU.RedisPublish))
	}
	s.line("processors", cores(sizes.CPU.Redis()), stages)
}

// rests says what the answer rests on, and what it leaves out.
func (s *sheet) rests() {
	s.title("MEASURED, on " + sizing.Machine)
	for _, constant := range sizing.Constants() {
		_, _ = fmt.Fprintf(s, "%7g %s: %s (%s)\n", constant.Value, constant.Unit, constant.Name, constant.Source) // As above.
	}
	s.title("NOT COUNTED")
	for _, unknown := range sizing.Unknown {
		s.WriteString(unknown + "\n")
	}
}

func inBytes(n int64) string { return size(float64(n)) }

func cores(n float64) string { return fmt.Sprintf("%.2f", n) }

func seconds(n float64) string { return about(time.Duration(n * float64(time.Second))) }

// volume is a number of bytes.
type volume int

// UnmarshalText reads a flag.
func (v *volume) UnmarshalText(text []byte) error {
	n, err := config.ParseSize(string(text))
	if err != nil {
		return fmt.Errorf("%q %w", text, err)
	}
	*v = volume(n)
	return nil
}
