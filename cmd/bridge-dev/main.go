// Command bridge-dev runs a bridge and all that it needs in one process: NATS, a Redis,
// and the bridge between them. `bridge dev` starts it. It is a program of its own so that
// the bridge in production has no server in it.
//
// Exit codes: 0 done; 1 something failed; 2 the command line is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is what the command gets.
type program struct {
	// ctx ends with the first signal.
	ctx            context.Context
	stdout, stderr io.Writer
}

// usageError is one of the command line.
type usageError struct{ error }

func main() {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it.
		signals = append(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // `bridge dev | head` must not leave its folder behind.
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // The second signal ends the process.
	os.Exit(run(&program{ctx: ctx, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:]))
}

// run executes the command and returns the exit code.
func run(p *program, args []string) int {
	var command devCommand
	parser, err := kong.New(&command,
		kong.Name("bridge dev"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(p.stdout, p.stderr),
	)
	if err == nil {
		_, err = parser.Parse(args)
		if err != nil {
			err = usageError{err}
		}
	}
	if err == nil {
		err = command.Run(p)
	}
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintf(p.stderr, "bridge dev: %v\n", err) // There is nobody else to tell.
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}
