package command

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type forecastCommand struct {
	queueFlags
	From   *instant `xor:"from" placeholder:"TIME" help:"Where the first step begins, RFC 3339. Default: now."`
	To     *instant `xor:"to" placeholder:"TIME" help:"Where the last step ends, RFC 3339. Default: a day after the first begins."`
	Step   *span    `xor:"step" placeholder:"DURATION" help:"How long a step is: 1m, 1h, 1d. At most 1,440 steps. Default: 1h."`
	Within *span    `xor:"from,to,step" placeholder:"DURATION" help:"Print only what consumers will get within this time, as an autoscaler is told: 90s, 5m."`
}

func (forecastCommand) Help() string {
	return `The counts are exact. Parked messages count as due now. Bytes are estimated from the stored sizes of some random
messages.

Examples:

    bridge forecast --config bridge.yaml --queue orders --step 15m
    bridge forecast --config bridge.yaml --queue orders --within 2m`
}

func (c forecastCommand) Run(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	if c.Within != nil {
		return c.demand(s)
	}
	var f inspect.Forecast
	step := span(time.Hour)
	if c.Step != nil {
		step = *c.Step
	}
	err = s.walk(func() (err error) {
		f, err = s.Forecast(s.ctx, c.From.time(), c.To.time(), time.Duration(step))
		return err
	})
	switch {
	case err != nil:
		return s.fail("forecast", "", err)
	case c.json():
		return writeJSON(p.stdout, operate.ViewForecast(&f))
	}
	return plot(p.stdout, &f)
}

func (c forecastCommand) demand(s *session) error {
	var d operate.Demand
	err := s.walk(func() (err error) {
		d, err = s.Demand(s.ctx, time.Duration(*c.Within))
		return err
	})
	switch {
	case err != nil:
		return s.fail("forecast", "", err)
	case c.json():
		return writeJSON(s.program.stdout, d)
	}
	_, err = fmt.Fprintln(s.program.stdout, describeDemand(&d))
	return err
}

// describeDemand says in a line what consumers will get, and what of it they will not.
func describeDemand(d *operate.Demand) string {
	text := fmt.Sprintf("%s: %d due, %d more within %gs", count(int(d.Messages), "message"), d.Due, d.Upcoming, d.Within)
	if d.Parked > 0 {
		text += fmt.Sprintf("; %d parked", d.Parked)
	}
	if d.Paused {
		text += "; the queue is paused"
	}
	return text
}

// plotWidth is how wide the longest bar is.
const plotWidth = 50

// plot draws a bar a step.
func plot(w io.Writer, f *inspect.Forecast) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	most := max(f.Due, 1)
	for _, n := range f.Steps {
		most = max(most, n)
	}
	line := func(name string, n int64) {
		bar := strings.Repeat("#", int((n*plotWidth+most-1)/most))
		_, _ = fmt.Fprintf(tabs, "%s\t%d\t%s\t  %s\n", name, n, size(float64(n)*f.Size.Mean), bar) // Flush has the error.
	}
	name := "due now"
	if f.Parked > 0 {
		name = fmt.Sprintf("due now (%d parked)", f.Parked)
	}
	_, _ = fmt.Fprintln(tabs, "DUE\tMESSAGES\tBYTES\t")
	line(name, f.Due)
	if f.Before > 0 {
		line("before", f.Before)
	}
	for i, n := range f.Steps {
		line(formatTime(f.From.Add(time.Duration(i)*f.Step)), n)
	}
	if f.Later > 0 {
		line("later", f.Later)
	}
	if err := tabs.Flush(); err != nil || f.Size.Sampled == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "bytes: %.0f ± %.0f a message, of %s measured\n", f.Size.Mean, f.Size.Error, count(f.Size.Sampled, "message"))
	return err
}

// size is a number of bytes as people say it.
func size(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	const step = 1024
	for n >= step && len(units) > 1 {
		n, units = n/step, units[1:]
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + " " + units[0]
}
