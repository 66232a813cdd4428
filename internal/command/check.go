package command

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/preflight"
)

// checkCommand logs in everywhere before anything is deployed.
type checkCommand struct {
	fileFlag
	outputFlag
	Topic []string `placeholder:"[QUEUE=]TOPIC" sep:"none" help:"A topic to check, of every queue or of one. May be given several times. Topics of waiting messages are checked without it."`
}

func (checkCommand) Help() string {
	return `Logs in to Redis, to every sink and to every outbox, and says what will not work, what loses messages when something fails, why, and what to do about
it. It only reads, takes at most a minute, and may run beside everything else.

Exit code 0: nothing was found; 1: warnings; 2: something will not work, or the configuration is wrong. Notes, about what it could not see, do not count.

Example:

    bridge check --config bridge.yaml --topic orders=order.timeout`
}

func (c checkCommand) Run(p *program) error {
	cfg, err := loadConfig(p, c.Config)
	if err != nil {
		return err
	}
	flight, err := preflight.New(cfg, c.Topic)
	if err != nil {
		return &failure{code: "config", exit: exitUsage, cause: err}
	}
	defer flight.Close()
	steps, err := flight.Steps()
	if err != nil {
		return &failure{code: "config", exit: exitUsage, cause: err}
	}
	results := check.Run(p.ctx, steps)
	if err := p.ctx.Err(); err != nil {
		return err
	}
	report := newCheckReport(c.Config, results)
	if c.json() {
		err = writeJSON(p.stdout, report)
	} else {
		err = report.print(p)
	}
	if err != nil {
		return err
	}
	return report.verdict()
}

// checkReport is what was found, as programs see it.
type checkReport struct {
	Config   string          `json:"config"`
	Result   string          `json:"result"` // ok, warning or error
	Warnings int             `json:"warnings"`
	Errors   int             `json:"errors"`
	Checked  []stepResult    `json:"checked"`
	Findings []check.Finding `json:"findings"`
}

// stepResult is a step, as programs see it.
type stepResult struct {
	Area    string  `json:"area"`
	Subject string  `json:"subject"`
	Result  string  `json:"result"`
	Took    float64 `json:"took"` // seconds
}

func newCheckReport(file string, results []check.Result) *checkReport {
	r := &checkReport{Config: file, Findings: []check.Finding{}}
	for _, step := range results {
		worst, _ := check.Worst(step.Findings)
		r.Checked = append(r.Checked, stepResult{step.Area, step.Subject, resultOf(worst), step.Took.Seconds()})
		r.Findings = append(r.Findings, step.Findings...)
	}
	for i := range r.Findings { // So that a remedy can be typed as it is.
		r.Findings[i].Remedy = strings.ReplaceAll(r.Findings[i].Remedy, "--config FILE", "--config "+quote(file))
	}
	for _, f := range r.Findings {
		switch f.Level {
		case check.Error:
			r.Errors++
		case check.Warning:
			r.Warnings++
		case check.Note:
		}
	}
	worst, _ := check.Worst(r.Findings)
	r.Result = resultOf(worst)
	return r
}

// resultOf is the worst level for programs: notes are of no consequence.
func resultOf(worst check.Level) string {
	if worst == check.Note {
		return "ok"
	}
	return worst.String()
}

// print writes the table of what was checked, and then each finding.
func (r *checkReport) print(p *program) error {
	tabs := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tabs, "AREA\tCHECKED\tRESULT\tTOOK") // Flush has the error.
	for _, step := range r.Checked {
		took := time.Duration(step.Took * float64(time.Second)).Round(time.Millisecond)
		_, _ = fmt.Fprintf(tabs, "%s\t%s\t%s\t%v\n", step.Area, step.Subject, step.Result, took)
	}
	if err := tabs.Flush(); err != nil {
		return err
	}
	for _, f := range r.Findings {
		_, err := fmt.Fprintf(p.stdout, "\n%s  %s  %s  [%s]\n  what    %s\n  why     %s\n  remedy  %s\n",
			strings.ToUpper(f.Level.String()), f.Area, f.Subject, f.Code, f.What, f.Why, f.Remedy)
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(p.stdout, "\n%s: %s, %s\n", r.Result, count(r.Errors, "error"), count(r.Warnings, "warning"))
	return err
}

// verdict is the exit code; what it is about was printed.
func (r *checkReport) verdict() error {
	switch {
	case r.Errors > 0:
		return exitCode(exitUsage)
	case r.Warnings > 0:
		return exitCode(exitFailed)
	}
	return nil
}

// exitCode ends the program with that code, and without a word.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
