package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// Build compiles this repository's bridge into dir, from any of its modules, and returns
// the binary's path.
func Build(ctx context.Context, dir string) (string, error) {
	return service.Build(ctx, "./cmd/bridge", dir)
}

// BuildCommit compiles the bridge of another commit of this repository, once, and returns the binary's path.
func BuildCommit(ctx context.Context, commit string) (string, error) {
	root, err := service.Root()
	if err != nil {
		return "", err
	}
	hash, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--verify", commit+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("find commit %s: %w", commit, err)
	}
	commit = strings.TrimSpace(string(hash))
	return service.Cached(root, filepath.Join("built", commit), commit, func(path string) error {
		dir, err := os.MkdirTemp("", "delaybridge-source-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		archive := filepath.Join(dir, "source.tar")
		for _, words := range [][]string{
			{"git", "-C", root, "archive", "--output", archive, commit},
			{"tar", "-xf", archive, "-C", dir},
			{"go", "build", "-C", dir, "-buildvcs=false", "-o", path, "./cmd/bridge"},
		} {
			if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil { //nolint:gosec // the words are ours
				return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
			}
		}
		return nil
	})
}

// Bridge is one bridge process.
type Bridge struct {
	// Config is the path of its configuration.
	Config string

	binary, log, admin string
	host               service.Host
	free               func() // gives the port back
	command            *exec.Cmd
	ended              chan error
	kills              int
}

// Setup is what a configuration needs.
type Setup struct {
	// Redis is the configuration's section, in YAML flow style.
	Redis, Prefix string
	Queue         string
	Shards        int
	// Sink is the section of the one sink, alike.
	Sink string
	// Queues are further queues, with as many shards and the same sink.
	Queues []string
	// QueueKeys are further keys of each queue, in YAML flow style.
	QueueKeys string
	// Extra are further lines of YAML.
	Extra string
}

// NewBridge writes a configuration into dir; it starts nothing.
func NewBridge(ctx context.Context, binary, dir string, s Setup) (*Bridge, error) {
	host, err := service.HostOf(ctx, "bridge")
	if err != nil {
		return nil, err
	}
	port, free, err := service.ReservePort()
	if err != nil {
		return nil, err
	}
	admin := host.At(port)
	var queues strings.Builder
	for _, name := range append([]string{s.Queue}, s.Queues...) {
		_, _ = fmt.Fprintf(&queues, "  %s: {shards: %d, sink: broker, %s}\n", name, s.Shards, s.QueueKeys)
	}
	config := fmt.Sprintf("prefix: %s\nredis: %s\nqueues:\n%ssinks:\n  broker: %s\nadmin: {listen: %q}\n%s\n",
		s.Prefix, s.Redis, queues.String(), s.Sink, admin, s.Extra)
	b := &Bridge{
		Config: filepath.Join(dir, "bridge.yaml"), binary: binary, log: filepath.Join(dir, "bridge.log"), admin: admin, free: free, host: host,
	}
	return b, os.WriteFile(b.Config, []byte(config), 0o600)
}

// Start starts the process and waits until it is ready.
func (b *Bridge) Start(ctx context.Context) error {
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	b.command = exec.CommandContext(context.WithoutCancel(ctx), b.binary, "run", "--config", b.Config)
	b.command.Stdout, b.command.Stderr = log, log
	b.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.host.Do(b.command.Start); err != nil {
		return err
	}
	b.ended = make(chan error, 1)
	go func() { b.ended <- b.command.Wait() }()
	for {
		if b.get(ctx, "/readyz", func(io.Reader) error { return nil }) == nil {
			return nil
		}
		select {
		case err := <-b.ended:
			return fmt.Errorf("bridge ended: %w: %s", err, b.Log())
		case <-ctx.Done():
			return fmt.Errorf("bridge not ready: %w: %s", ctx.Err(), b.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// get asks the admin listener, and has the answer read.
func (b *Bridge) get(ctx context.Context, path string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.admin+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err = read(response.Body); response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// Admin is the address of the bridge's admin listener.
func (b *Bridge) Admin() string { return b.admin }

// Kill ends the process at once, as kill -9 does.
func (b *Bridge) Kill() error {
	err := b.command.Process.Kill()
	<-b.ended //nolint:errcheck // it was killed
	b.kills++
	return err
}

// Stop drains the process and returns an error unless it exits with 0 in time.
func (b *Bridge) Stop() error {
	if err := b.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-b.ended:
		return err
	case <-time.After(45 * time.Second):
		return errors.Join(errors.New("bridge did not stop in time"), b.Kill())
	}
}

// close ends the process, if it runs, and gives its port back.
func (b *Bridge) close() {
	if b.command != nil && b.command.ProcessState == nil {
		_ = b.Kill()
	}
	b.free()
}

// Pause stops the process as if its machine hung: at Resume it continues as if
// no time had passed.
func (b *Bridge) Pause() error { return b.command.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (b *Bridge) Resume() error { return b.command.Process.Signal(syscall.SIGCONT) }

// Log is what the bridge has printed so far.
func (b *Bridge) Log() string {
	text, _ := os.ReadFile(b.log) // What cannot be read is empty.
	return string(text)
}
