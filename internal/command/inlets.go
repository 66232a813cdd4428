package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// inletsCommand asks the running bridge: no other knows what its inlets do.
type inletsCommand struct {
	fileFlag
	outputFlag
	apiFlags
	Timeout time.Duration `default:"5s" help:"Longest wait for the answer."`
}

func (inletsCommand) Help() string {
	return `Asks a running bridge, as GET /api/v1/inlets does, and prints what that one sees: whether it consumes or why not, what waits at the broker, and what came of the messages that it
had. Bridges that share an inlet have figures of their own. -o wide has the results, and the last message that was refused. Under https, the system must know the
authority of the bridge's certificate; SSL_CERT_FILE names a file with another one.

Example:

    bridge inlets --config bridge.yaml
    bridge inlets --config bridge.yaml --url http://10.0.0.7:8080 --token-file token.txt -o json`
}

func (c inletsCommand) Run(p *program) error {
	cfg, err := loadConfig(p, c.Config)
	if err != nil {
		return err
	}
	address, err := c.address(cfg.Admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.Timeout)
	defer cancel()
	text, err := c.ask(ctx, http.MethodGet, address+"/api/v1/inlets", nil)
	if err != nil {
		return err
	}
	var all operate.Inlets
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%s gives no answer of a bridge: %w", address, err)
	}
	list := c.listing(p.stdout, "INLET", "FROM", "QUEUE", "STATE", "SINCE", "BEHIND", "DONE/S", "DONE", "REFUSED", "WHY", "+SINK", "+RESULTS", "+LAST REFUSED")
	for i := range all.Inlets {
		v := &all.Inlets[i]
		done, refused := totals(v.Results)
		if err := list.row(func() any { return v }, v.Name, v.From, v.Queue, v.State, v.Since, known(v.Behind), rateOf(v.Rate), done, refused,
			why(v), v.Sink, results(v.Results), lastRefused(v.Refused)); err != nil {
			return err
		}
	}
	err = list.end(nil, "%s has no inlets", all.Instance)
	if err == nil && len(all.Inlets) > 0 && !c.json() {
		_, err = fmt.Fprintf(p.stdout, "as %s sees them, since %s\n", all.Instance, all.Began)
	}
	return err
}

// totals are how many messages were done, and how many of them were refused.
func totals(results []operate.InletResult) (done, refused int64) {
	for _, r := range results {
		if done += r.Count; r.Result == operate.CodeInvalid {
			refused += r.Count
		}
	}
	return done, refused
}

func why(v *operate.InletView) string {
	switch {
	case v.Cause == "":
		return "-"
	case v.Reason == "":
		return v.Cause
	}
	return v.Cause + ": " + v.Reason
}

func results(all []operate.InletResult) string {
	var texts []string
	for _, r := range all {
		texts = append(texts, fmt.Sprintf("%s=%d", strings.TrimPrefix(r.Op+" "+r.Result, " "), r.Count))
	}
	return cmp.Or(strings.Join(texts, ", "), "-")
}

func lastRefused(r *operate.InletRefusal) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%s %s: %s", r.At, cmp.Or(r.Position, printableLine(r.ID), "without id"), r.Reason)
}

// known is a figure, or a dash if it is not known.
func known(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func rateOf(r *operate.InletRate) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.Done)
}
