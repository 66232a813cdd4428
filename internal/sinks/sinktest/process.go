package sinktest

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Process is a [PrivateBroker]'s life where that is this test program in another process, which ends when its standard input does.
type Process struct{ cmd *exec.Cmd }

// Run starts the program with these arguments. The variable of the environment tells it what it is.
func (p *Process) Run(t testing.TB, variable string, args ...string) {
	t.Helper()
	p.cmd = exec.Command(os.Args[0], args...) //nolint:noctx // until Kill
	p.cmd.Env = append(os.Environ(), variable+"=1")
	p.cmd.Stderr = os.Stderr
	_, err := p.cmd.StdinPipe() // It ends with this process.
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
}

// Await waits until a sink reaches it.
func (*Process) Await(t testing.TB, broker Broker) {
	t.Helper()
	sink := broker.NewSink(t, Options{})
	defer func() { require.NoError(t, sink.Close(context.Background())) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, sink.Ping(context.Background())) }, time.Minute, 10*time.Millisecond)
}

// Kill implements [PrivateBroker].
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait() // It says that it was killed.
}

// Pause implements [PrivateBroker].
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	_, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WUNTRACED, nil) // It has stopped.
	require.NoError(t, err)
}

// Resume implements [PrivateBroker].
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
}
