package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// queuesCommands ask a running bridge: it knows what may be declared, and by whom, and who runs these needs neither its configuration nor Redis.
type queuesCommands struct {
	List   queuesListCommand   `cmd:"" help:"List the queues that were declared by the API."`
	Show   queuesShowCommand   `cmd:"" help:"Show how a queue was declared by the API."`
	Apply  queuesApplyCommand  `cmd:"" help:"Declare the queues of a file, or change them."`
	Delete queuesDeleteCommand `cmd:"" help:"Remove a queue that was declared by the API."`
}

// bridgeFlags name a running bridge, whose configuration need not be here.
type bridgeFlags struct {
	Config string `short:"c" env:"${config_variable}" placeholder:"FILE" help:"The bridge's configuration file, to ask the one on this machine. Not needed with --url."`
	outputFlag
	apiFlags
	Timeout time.Duration `default:"15s" help:"Longest wait for an answer."`
}

// connect returns how to call the bridge: body is what to send as JSON, into what the answer is read to.
func (f bridgeFlags) connect(p *program) (func(method, path string, body, into any, headers ...string) error, error) {
	address := strings.TrimSuffix(f.URL, "/")
	if address == "" {
		if f.Config == "" {
			return nil, usagef("give --url, the bridge to ask, or --config")
		}
		cfg, err := loadConfig(p, f.Config)
		if err != nil {
			return nil, err
		}
		if address, err = f.address(cfg.Admin); err != nil {
			return nil, err
		}
	}
	return func(method, path string, body, into any, headers ...string) error {
		ctx, cancel := context.WithTimeout(p.ctx, f.Timeout)
		defer cancel()
		var text []byte
		var err error
		if body != nil {
			if text, err = json.Marshal(body); err != nil {
				return err
			}
		}
		if text, err = f.ask(ctx, method, address+"/api/v1"+path, text, headers...); err != nil {
			return err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("%s gives no answer of a bridge: %w", address, err)
		}
		return nil
	}, nil
}

// declarationPath is where the declaration of a queue is.
func declarationPath(queue string) string { return "/declarations/" + url.PathEscape(queue) }

type queuesListCommand struct{ bridgeFlags }

func (queuesListCommand) Help() string {
	return `The state is what the bridge that is asked sees: in force, pending for some seconds, or wrong. -o wide has the problems.

Example:

    bridge queues list --url http://10.0.0.7:8080 --token-file token.txt`
}

func (c queuesListCommand) Run(p *program) error {
	call, err := c.connect(p)
	if err != nil {
		return err
	}
	all, err := declarationsOf(call)
	if err != nil {
		return err
	}
	list := c.listing(p.stdout, "NAME", "SINK", "OWNER", "STATE", "BY", "AT", "+REVISION", "+PROBLEMS")
	for i := range all {
		d := &all[i]
		if err := list.row(func() any { return d }, d.Name, d.Queue["sink"], ownerOf(d), stateOf(d), cmp.Or(d.By, "-"), d.At, d.Revision, problemsOf(d)); err != nil {
			return err
		}
	}
	return list.end(nil, "no queues are declared by the API")
}

func declarationsOf(call func(method, path string, body, into any, headers ...string) error) ([]operate.Declaration, error) {
	var answer struct{ Declarations []operate.Declaration }
	err := call(http.MethodGet, "/declarations", nil, &answer)
	return answer.Declarations, err
}

func ownerOf(d *operate.Declaration) string {
	owner, _ := d.Queue["owner"].(string)
	return cmp.Or(owner, "-")
}

func stateOf(d *operate.Declaration) string {
	switch {
	case len(d.Problems) > 0:
		return "wrong"
	case d.InForce:
		return "in force"
	}
	return "pending"
}

func problemsOf(d *operate.Declaration) string { return cmp.Or(strings.Join(d.Problems, "; "), "-") }

// declarationFlags name a queue that was declared by the API.
type declarationFlags struct {
	bridgeFlags
	Name string `arg:"" help:"The queue."`
}

type queuesShowCommand struct{ declarationFlags }

func (c queuesShowCommand) Run(p *program) error {
	call, err := c.connect(p)
	if err != nil {
		return err
	}
	var d operate.Declaration
	if err := call(http.MethodGet, declarationPath(c.Name), nil, &d); err != nil {
		return err
	}
	if c.json() {
		return writeJSON(p.stdout, d)
	}
	tabs := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	line := liner(tabs)
	line("name", d.Name)
	line("state", stateOf(&d))
	for _, problem := range d.Problems {
		line("problem", problem)
	}
	line("by", d.By)
	line("at", d.At)
	line("revision", d.Revision)
	for _, key := range slices.Sorted(maps.Keys(d.Queue)) {
		text, err := json.Marshal(d.Queue[key])
		if err != nil {
			return err
		}
		line("queue."+key, strings.Trim(string(text), `"`))
	}
	return tabs.Flush()
}

type queuesApplyCommand struct {
	bridgeFlags
	File string `short:"f" required:"" placeholder:"FILE" help:"The file with the queues: queues, and owner and contacts of those that have none. -: standard input."`
}

func (queuesApplyCommand) Help() string {
	return `The file is one as queue_files names them. Each queue is declared, or changed if the bridge has it otherwise; all bridges have it within seconds. A queue that the file does
not have stays as it is: delete it by itself. It ends at the first queue that is refused. Keep the file under version control, and apply it again after a loss.

Example:

    bridge queues apply --url http://10.0.0.7:8080 --token-file token.txt -f team.yaml`
}

func (c queuesApplyCommand) Run(p *program) error {
	queues, err := c.read(p)
	if err != nil {
		return err
	}
	call, err := c.connect(p)
	if err != nil {
		return err
	}
	before, err := declarationsOf(call)
	if err != nil {
		return err
	}
	seen := map[string]string{}
	for _, d := range before {
		seen[d.Name] = d.Revision
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		condition := []string{"If-None-Match", "*"}
		if revision, isThere := seen[name]; isThere {
			condition = []string{"If-Match", `"` + revision + `"`}
		}
		var change operate.DeclarationChange
		if err := call(http.MethodPut, declarationPath(name), queues[name], &change, condition...); err != nil {
			return aboutQueue(name, err)
		}
		if c.json() {
			err = writeJSON(p.stdout, change)
		} else {
			_, err = fmt.Fprintf(p.stdout, "%s %s\n", change.Status, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads the file.
func (c queuesApplyCommand) read(p *program) (map[string]map[string]any, error) {
	from := p.stdin
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, usagef("-f: %v", err)
		}
		defer func() { _ = file.Close() }() // It was only read.
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, mostAnswer))
	if err != nil {
		return nil, usagef("-f: %v", err)
	}
	queues, err := config.Declarations(content)
	if err != nil {
		return nil, usagef("%s: %v", c.File, err)
	}
	return queues, nil
}

// aboutQueue names the queue that an error is about.
func aboutQueue(name string, err error) error {
	f := explain(err)
	f.id, f.text = name, name+": "+f.Error()
	return f
}

type queuesDeleteCommand struct {
	declarationFlags
	KeepMessages bool `help:"Also if the queue has messages: they stay in Redis, and are published when a queue of that name is declared again."`
}

func (queuesDeleteCommand) Help() string {
	return `It is refused while the queue has messages, unless --keep-messages says that these may stay in Redis. Exit code 3: the queue was not declared by the API, or has messages.

Example:

    bridge queues delete payments-reminders --url http://10.0.0.7:8080 --token-file token.txt`
}

func (c queuesDeleteCommand) Run(p *program) error {
	call, err := c.connect(p)
	if err != nil {
		return err
	}
	var d operate.Declaration
	if err := call(http.MethodGet, declarationPath(c.Name), nil, &d); err != nil {
		return err
	}
	path := declarationPath(c.Name)
	if c.KeepMessages {
		path += "?keep_messages=true"
	}
	var deleted operate.DeclarationDeletion
	if err := call(http.MethodDelete, path, nil, &deleted, "If-Match", `"`+d.Revision+`"`); err != nil {
		return err
	}
	if c.json() {
		return writeJSON(p.stdout, deleted)
	}
	text := "deleted " + c.Name
	if deleted.Kept > 0 {
		text += fmt.Sprintf("; left in Redis: %s", count(int(deleted.Kept), "message"))
	}
	_, err = fmt.Fprintln(p.stdout, text)
	return err
}
