package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// inletsCommand asks the running bridge: no other knows what its inlets do.
type inletsCommand struct {
	fileFlag
	outputFlag
	URL       string        `placeholder:"URL" help:"The bridge to ask, as http://10.0.0.7:8080. Default: the one on this machine, at admin.listen."`
	TokenFile string        `placeholder:"FILE" help:"A file with a token that the bridge knows; needed with admin.auth."`
	Timeout   time.Duration `default:"5s" help:"Longest wait for the answer."`
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
	url := strings.TrimSuffix(c.URL, "/")
	if url == "" {
		if url, err = apiURL(cfg.Admin); err != nil {
			return &failure{code: "config", exit: exitUsage, cause: err}
		}
	}
	all, err := c.ask(p.ctx, url+"/api/v1/inlets")
	if err != nil {
		return err
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

// apiURL is where this machine asks.
func apiURL(admin config.Admin) (string, error) {
	if admin.Listen == "" {
		return "", errors.New("admin.listen: the bridge has no listener, so it cannot be asked")
	}
	scheme := "http"
	if admin.TLS != nil {
		scheme = "https"
	}
	host, err := fromHere(admin.Listen)
	return scheme + "://" + host, err
}

// ask makes the call.
func (c inletsCommand) ask(ctx context.Context, url string) (all operate.Inlets, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return all, usagef("--url: %v", err)
	}
	if c.TokenFile != "" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return all, usagef("--token-file: %v", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return all, fmt.Errorf("no bridge answers: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	const most = 16 << 20
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return all, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return all, refusal(url, response.Status, text)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return all, fmt.Errorf("%s gives no answer of a bridge: %w", url, err)
	}
	return all, nil
}

// refusal is what the bridge says in place of an answer.
func refusal(url, status string, text []byte) error {
	var problem struct{ Code, Detail string }
	if json.Unmarshal(text, &problem) != nil || problem.Code == "" {
		return fmt.Errorf("%s answers %s", url, status)
	}
	f := &failure{code: problem.Code, exit: exitOf(problem.Code), text: fmt.Sprintf("%s answers %s: %s", url, status, problem.Detail)}
	if problem.Code == "unauthorized" {
		f.hint = "--token-file names a file with a token"
	}
	return f
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
