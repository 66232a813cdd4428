//go:build unix

package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// canSupervise says whether a child can be made to die with us.
const canSupervise = true

const (
	childStart = 30 * time.Second // with a large file to load
	childStop  = 10 * time.Second
	pongPause  = 10 * time.Millisecond
	logShown   = 2 << 10
)

// supervise becomes the server itself, so that its process is our child. Before
// that it leaves behind a process that waits at our pipe, which ends when we do,
// however that comes about, and then ends the server.
const supervise = `(read -r _ <&3; kill -s TERM $$) 2>/dev/null & exec "$@" 3<&-`

// child is a server in a process of its own, which does not outlive ours. It
// owns one goroutine, which waits for the process.
type child struct {
	cmd     *exec.Cmd
	keep    *os.File
	name    string
	logPath string
	ended   chan error
	gone    chan struct{}
}

func startChild(dir string, argv ...string) (*child, error) {
	c := &child{
		name: filepath.Base(argv[0]), logPath: filepath.Join(dir, "server.log"),
		ended: make(chan error, 1), gone: make(chan struct{}),
	}
	log, err := os.Create(c.logPath)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = read.Close() }()
	c.keep = write
	// No context: close ends it, in order.
	c.cmd = exec.Command("/bin/sh", append([]string{"-c", supervise, "supervise"}, argv...)...) //nolint:noctx // see above
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, log, log
	c.cmd.ExtraFiles = []*os.File{read}
	// A group of its own: a terminal's interrupt is for us, and we still need it then.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		_ = write.Close()
		return nil, fmt.Errorf("start process: %w", err)
	}
	go c.wait()
	return c, nil
}

func (c *child) wait() {
	defer close(c.gone)
	_ = c.cmd.Wait() // The state says it, too.
	_ = c.keep.Close()
	c.ended <- fmt.Errorf("%s has ended: %v", c.name, c.cmd.ProcessState)
}

func (c *child) failed() <-chan error { return c.ended }

// close ends the process, and kills it where that takes too long.
func (c *child) close() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // It may be gone already.
	timer := time.NewTimer(childStop)
	defer timer.Stop()
	select {
	case <-c.gone:
	case <-timer.C:
		_ = c.cmd.Process.Kill()
		<-c.gone
	}
}

// log is the end of what the process said.
func (c *child) log() string {
	text, err := os.ReadFile(c.logPath)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logShown):])
}

// awaitPong waits until a Redis takes requests.
func awaitPong(ctx context.Context, addr string, c *child) error {
	ctx, cancel := context.WithTimeout(ctx, childStart)
	defer cancel()
	for {
		err := ping(ctx, addr)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pongPause)
		select {
		case <-timer.C:
		case <-c.gone:
			timer.Stop()
			return <-c.ended
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("not ready: %w", err)
		}
	}
}

// ping asks one PING; a Redis that still loads its data answers otherwise.
func ping(ctx context.Context, addr string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = errors.New(answer)
	}
	return err
}
