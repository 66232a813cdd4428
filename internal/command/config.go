package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/internal/config"
)

type configCommands struct {
	Validate validateCommand `cmd:"" help:"Check a configuration, as the bridge does when it starts."`
	Print    printCommand    `cmd:"" help:"Print the configuration in effect, with all defaults; secrets are masked."`
	Schema   schemaCommand   `cmd:"" help:"Print a JSON Schema of the configuration file."`
	ACL      aclCommand      `cmd:"" name:"acl" help:"Print the least rights of the users of Redis, its sentinels and the brokers."`
}

type validateCommand struct {
	fileFlag
	outputFlag
}

func (validateCommand) Help() string {
	return `Lists all problems at once, each with its key and line; the exit code is then 2.

Example:

    bridge config validate --config bridge.yaml`
}

func (c validateCommand) Run(p *program) error {
	cfg, err := config.Load(c.Config, p.environ)
	if err == nil {
		err = config.JoinProblems(cfg.FileErrors())
	}
	if err != nil {
		return configFailure(c.Config, err)
	}
	if c.json() {
		return writeJSON(p.stdout, struct {
			Config string `json:"config"`
			Valid  bool   `json:"valid"`
		}{c.Config, true})
	}
	_, err = fmt.Fprintf(p.stdout, "%s is valid: %s, %s\n", c.Config, count(len(cfg.Queues), "queue"), count(len(cfg.Sinks), "sink"))
	return err
}

type printCommand struct{ fileFlag }

func (printCommand) Help() string {
	return `It includes environment variables DELAYBRIDGE__….

Example:

    DELAYBRIDGE__LOG__LEVEL=debug bridge config print --config bridge.yaml`
}

func (c printCommand) Run(p *program) error {
	cfg, err := loadConfig(p, c.Config)
	if err != nil {
		return err
	}
	return cfg.Print(p.stdout)
}

type schemaCommand struct{}

func (schemaCommand) Help() string {
	return `Editors use it to complete and check the file.

Example:

    bridge config schema > bridge.schema.json`
}

func (schemaCommand) Run(p *program) error {
	schema, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(schema)
	return err
}

// loadConfig reads a configuration. Every command refuses a bad one in the same words, and goes on
// without the queues of a bad queue file: it may be about others.
func loadConfig(p *program, path string) (*config.Config, error) {
	cfg, err := config.Load(path, p.environ)
	if err != nil {
		return nil, configFailure(path, err)
	}
	for _, problem := range cfg.FileErrors() {
		if _, err := fmt.Fprintln(p.stderr, "warning: queue file "+problem.Error()); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// configFailure explains an error of config.Load; nil if there is none.
func configFailure(path string, err error) error {
	if err == nil {
		return nil
	}
	problems := listProblems(err)
	if len(problems) == 0 {
		return &failure{code: "config", exit: exitUsage, cause: err}
	}
	text := fmt.Sprintf("%s has %s:\n  %s", path, count(len(problems), "problem"), strings.Join(problems, "\n  "))
	return &failure{code: "config", exit: exitUsage, text: text, cause: err}
}

// listProblems finds the problems in an error of config.Load.
func listProblems(err error) []string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	var texts []string
	for _, err := range joined.Unwrap() {
		if problem, ok := errors.AsType[*config.Problem](err); ok {
			texts = append(texts, problem.Error())
		}
	}
	return texts
}

func count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
