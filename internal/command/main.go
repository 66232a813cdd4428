// Package command is the program bridge: it runs the bridge, and schedules, shows and changes
// messages. Each command has a file with its flags, its table and its texts; package operate
// has the queries, the verbs and their JSON.
//
// Exit codes: 0 done; 1 Redis, a broker or something else failed; 2 the command
// line or the configuration is wrong; 3 the message's state does not allow it.
package command

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// program is what every command gets.
type program struct {
	// ctx ends with the first signal.
	ctx            context.Context
	release        string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// Main executes the command of the process' arguments, and returns the exit code. release is the
// version, if the build was given one.
func Main(release string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go watchSignals(cancel)
	return run(&program{
		ctx: ctx, release: release, environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}, filepath.Base(os.Args[0]), os.Args[1:])
}

// run executes one command of the program, which is called name, and returns the exit code.
func run(p *program, name string, args []string) int {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:], "--help")
	}
	parser, err := newParser(p, name)
	if err == nil {
		err = checkText(args)
	}
	if err != nil {
		return report(p, wantsJSON(args), err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return report(p, wantsJSON(args), usageError(err))
	}
	return report(p, wantsJSON(args), command.Run(p, parser))
}

// checkText refuses bytes that the parser would replace without a word.
func checkText(args []string) error {
	for i, arg := range args {
		if utf8.ValidString(arg) {
			continue
		}
		value, isFlag := arg, strings.HasPrefix(arg, "--")
		flag := "an argument"
		switch {
		case isFlag:
			flag, value, _ = strings.Cut(arg, "=")
		case i > 0 && strings.HasPrefix(args[i-1], "-"):
			flag = args[i-1]
		}
		return usagef("%s: %q is not UTF-8; other bytes of a body are read from standard input", flag, value)
	}
	return nil
}

func newParser(p *program, name string) (*kong.Kong, error) {
	parser, err := kong.New(&commands{},
		kong.Name(name),
		kong.Description("Delivers messages to Kafka, RabbitMQ, NATS, Redis Streams, SQS, Pub/Sub or webhooks when they are due, unless they are cancelled."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(printHelp),
		kong.Writers(p.stdout, p.stderr),
		kong.Vars{"config_variable": configVariable, "outbox_table": schema.DefaultTable, "outbox_states": strings.Join(table.States(), ", ")},
	)
	if err == nil && name != ownName {
		rename(parser.Model.Node, name)
	}
	return parser, err
}

// ownName is what the program is called if it is not renamed. Packages for Linux call
// it delaybridge, since iproute2 has a program of this name.
const ownName = "bridge"

// ownCall is the program's name as a word, and not the beginning of a file's.
var ownCall = regexp.MustCompile(`\b` + ownName + `( |$)`)

// rename has the help call the program as it is called: in examples, which are indented, and
// behind a backquote.
func rename(node *kong.Node, name string) {
	lines := strings.Split(node.Detail, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "    ") {
			line = ownCall.ReplaceAllString(line, name+"$1")
		}
		lines[i] = strings.ReplaceAll(line, "`"+ownName+" ", "`"+name+" ")
	}
	node.Detail = strings.Join(lines, "\n")
	for _, child := range node.Children {
		rename(child, name)
	}
}
