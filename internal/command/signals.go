package command

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// takesHangups is set if the command does something else at SIGHUP than end. Signals
// are the process' own.
var takesHangups atomic.Bool

// watchSignals ends the program's ctx with the first signal, and the program
// with the second. It lives as long as the program. SIGHUP is none of these to a
// command that takes it, see takeHangups.
//
// A reader that closes our output is no signal but an error of the next write:
// `bridge dev | head` must not leave its folder behind.
func watchSignals(end context.CancelFunc) {
	// Each has its own, so that many of one kind never crowd out the other.
	ends, hangups := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it.
		signal.Notify(hangups, syscall.SIGHUP)
	}
	next := func() {
		for {
			select {
			case <-ends:
				return
			case <-hangups:
				if !takesHangups.Load() {
					return
				}
			}
		}
	}
	next()
	end()
	next()
	os.Exit(exitFailed)
}

// takeHangups returns a channel that receives when SIGHUP comes, which ends the command
// no more. Several at once count as one.
func takeHangups() <-chan os.Signal {
	takesHangups.Store(true)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}
