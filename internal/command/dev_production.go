//go:build production

package command

import "errors"

// trialCommands are in neither help nor manual.
type trialCommands struct {
	Dev devCommand `cmd:"" hidden:""`
}

// devCommand says where the servers are: this build links none.
type devCommand struct {
	Args []string `arg:"" optional:"" passthrough:"" hidden:""`
}

func (devCommand) Run() error {
	return &failure{
		code: "production_build", exit: exitFailed, cause: errors.New("built with the tag production"),
		text: "this build is for production, and has no servers in it",
		hint: "take bridge of the release's delaybridge-dev archive, or `go install github.com/delaybridge/delaybridge/cmd/bridge@latest`",
	}
}
