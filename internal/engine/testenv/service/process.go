package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 5 * time.Minute // RabbitMQ takes 5 s on an idle core, and a hundred where the tests load all of them
	stopTimeout  = 2 * time.Minute // a Kafka that archives its classes takes 5 s on an idle core
	pollInterval = 25 * time.Millisecond
	logTailBytes = 256 << 10
)

// cleanupScript, if a server's folder has it, removes what a killed server leaves
// outside of the folder.
const cleanupScript = "cleanup.sh"

// supervisor starts its arguments in a session of their own, so that SIGSTOP
// to the server's group does not stop the supervisor, and then waits at the
// other end of our pipe (3). Pipe 4 stays open as long as the server lives:
// its end of file is how we learn that it is gone, without being its parent.
// The server's children are killed by name, too: PostgreSQL's lead sessions of
// their own.
const supervisor = `
dir=$1; shift
setsid sh -c 'echo $$ >&4; exec "$@"' sh "$@" 3<&- &
exec 4>&-
word= children=
read -r word <&3
kill -s STOP "$!" 2>/dev/null
read -r children 2>/dev/null <"/proc/$!/task/$!/children"
kill -s KILL -- "-$!" $children 2>/dev/null
wait
if [ "$word" != keep ]; then
	n=0
	while kill -s 0 -- "-$!" 2>/dev/null && [ "$n" -lt 100 ]; do sleep 0.02; n=$((n+1)); done
	[ ! -e cleanup.sh ] || sh ./cleanup.sh
	rm -rf "$dir"
fi
exit 0
`

// process is one run of a server, from start to its end.
type process struct {
	shell *exec.Cmd
	keep  *os.File // the server is killed when this is closed
	alive *os.File // end of file: the server has ended
	group int      // process group, and process id of its leader
}

// live keeps each process reachable until it is released: the garbage
// collector closes a forgotten pipe, and that would kill the server of a caller
// who kept its address only.
var live sync.Map

// launch runs the command under a supervisor, both as another user if there is one. It
// does not wait until the server answers.
func (s *Server) launch() (*process, error) {
	log, err := os.OpenFile(logPath(s.dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	keepRead, keepWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = keepRead.Close() }()
	aliveRead, aliveWrite, err := os.Pipe()
	if err != nil {
		_ = keepWrite.Close()
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	p := &process{keep: keepWrite, alive: aliveRead}

	// No context: it would end the supervisor, which has to outlive us.
	p.shell = exec.Command("sh", append([]string{"-c", supervisor, "supervisor", s.dir}, s.argv...)...) //nolint:noctx // see above
	p.shell.Dir = s.dir
	p.shell.Env = s.env
	p.shell.Stdout, p.shell.Stderr = log, log
	p.shell.ExtraFiles = []*os.File{keepRead, aliveWrite}
	p.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.user}
	err = s.host.Do(p.shell.Start)
	_ = aliveWrite.Close()
	if err != nil {
		p.release(false)
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	if err := p.readGroup(); err != nil {
		p.release(false)
		return nil, fmt.Errorf("read process group: %w", err)
	}
	live.Store(p, nil)
	return p, nil
}

func (p *process) readGroup() error {
	if err := p.alive.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	line, err := bufio.NewReaderSize(p.alive, 16).ReadString('\n')
	if err != nil {
		return err
	}
	p.group, err = strconv.Atoi(strings.TrimSpace(line))
	return err
}

// ended waits up to d for the server's end and reports it.
func (p *process) ended(d time.Duration) bool {
	if err := p.alive.SetReadDeadline(time.Now().Add(d)); err != nil {
		return true
	}
	for {
		_, err := p.alive.Read(make([]byte, 64))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if err != nil {
			return true
		}
	}
}

// signal goes to the leader alone, or to the whole group and all children of the
// leader.
func (p *process) signal(sig syscall.Signal, group bool) error {
	ids := []int{p.group}
	if group {
		ids = append(p.children(), -p.group)
	}
	for _, id := range ids {
		if err := syscall.Kill(id, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %v: %w", sig, err)
		}
	}
	return nil
}

// children are those of the leader, in its group or not. If there is no /proc
// there are none.
func (p *process) children() []int {
	leader := strconv.Itoa(p.group)
	text, err := os.ReadFile(filepath.Join("/proc", leader, "task", leader, "children"))
	if err != nil {
		return nil
	}
	var ids []int
	for field := range strings.FieldsSeq(string(text)) {
		if id, err := strconv.Atoi(field); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// release kills what still runs, waits for the supervisor, and frees the
// pipes. The folder stays if keepDir.
func (p *process) release(keepDir bool) {
	if keepDir {
		_, _ = io.WriteString(p.keep, "keep\n")
	}
	_ = p.keep.Close()
	if p.shell.Process != nil {
		_ = p.shell.Wait()
	}
	_ = p.alive.Close()
	live.Delete(p)
}

// awaitReady polls ready until it succeeds, the server has ended, or ctx has.
func (p *process) awaitReady(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if p.ended(pollInterval) {
			return errors.New("server ended while starting")
		}
		if ctx.Err() != nil {
			return fmt.Errorf("server is not ready: %w", err)
		}
	}
}

func logPath(dir string) string { return filepath.Join(dir, "server.log") }

// readTail returns at most the last logTailBytes of the file.
func readTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-logTailBytes), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
