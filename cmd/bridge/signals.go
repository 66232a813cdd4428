package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchSignals ends the program's ctx with the first signal, and the program
// with the second. It lives as long as the program.
//
// A reader that closes our output is no signal but an error of the next write:
// `bridge dev | head` must not leave its folder behind.
func watchSignals(end context.CancelFunc) {
	signals := make(chan os.Signal, 2)
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it.
		signal.Notify(signals, syscall.SIGHUP)
	}
	<-signals
	end()
	<-signals
	os.Exit(exitFailed)
}
