package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// devProgram has the servers that production must not have.
const devProgram = "bridge-dev"

// devCommand hands over to the other program.
type devCommand struct {
	Args []string `arg:"" optional:"" help:"See bridge dev --help, which asks the program bridge-dev."`
}

func (c devCommand) Run(p *program) error {
	file, err := findDev()
	if err != nil {
		return err
	}
	// It prints commands to try, which begin as this one was called.
	args := append([]string{os.Args[0]}, c.Args...)
	return fmt.Errorf("start %s: %w", file, syscall.Exec(file, args, p.environ))
}

// findDev looks beside this program, and in PATH.
func findDev() (file string, err error) {
	if self, err := os.Executable(); err == nil {
		if file, err = exec.LookPath(filepath.Join(filepath.Dir(self), devProgram)); err == nil {
			return file, nil
		}
	}
	if file, err = exec.LookPath(devProgram); err == nil {
		return file, nil
	}
	return "", &failure{
		code: "no_dev", exit: exitFailed, cause: err,
		text: "there are no servers in this program; " + devProgram + " has them, and is neither beside it nor in PATH",
		hint: "get it by `go install github.com/delaybridge/delaybridge/cmd/" + devProgram +
			"@latest`, or with the release's delaybridge-dev archive; in a checkout `make build` makes both, and `go run ./cmd/" + devProgram + "` runs it",
	}
}
