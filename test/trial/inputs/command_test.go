package inputs

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"
)

// commandLine runs commands of the bridge.
type commandLine struct{ binary, config, queue string }

// args are those of a command for the queue.
func (c commandLine) args(command string, more ...string) []string {
	return append([]string{command, "--config", c.config, "--queue", c.queue}, more...)
}

// run runs a command. Exit code 2 says that the input is wrong, 3 that a message's
// state is; a crash of Go exits with 2, too, and says so.
func (c commandLine) run(ctx context.Context, args []string) (a answer, stdout string) {
	const longest = 2 * time.Minute // A busy machine takes its time.
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	command := exec.CommandContext(ctx, c.binary, args...)
	var out, errs bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(""), &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return answer{broken: true, text: err.Error()}, ""
	}
	code := command.ProcessState.ExitCode()
	text := errs.String()
	crashed := code < 0 || strings.Contains(text, "goroutine ") || strings.Contains(text, "panic: ")
	const wrong, state = 2, 3
	return answer{refused: !crashed && (code == wrong || code == state), broken: crashed || code == 1, text: text}, out.String()
}
