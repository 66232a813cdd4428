package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// binary is the program under test, built once, as a release is.
var binary string

const release = "v1.2.3"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bridge-test-")
	if err != nil {
		log.Fatal(err)
	}
	if binary, err = service.Build(context.Background(), "./cmd/bridge", dir, "-ldflags", "-X main.release="+release); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// commandTimeout is more than any command may take.
const commandTimeout = 60 * time.Second

// bridge runs a command to its end.
func bridge(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return begin(t, stdin, args...)()
}

// begin starts a command and returns what waits for its end.
func begin(t *testing.T, stdin string, args ...string) (wait func() outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	require.NoError(t, cmd.Start())
	return func() outcome {
		t.Helper()
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		require.NoError(t, ctx.Err(), "bridge %v hangs; stdout %s stderr %s", args, &stdout, &stderr)
		return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
}

// errorOf is the JSON error in the last line of standard error.
func (o outcome) errorOf(t *testing.T) (code, id string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
	var notice struct {
		Error struct{ Code, Message, ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &notice), o.stderr)
	require.NotEmpty(t, notice.Error.Message)
	return notice.Error.Code, notice.Error.ID
}

// object is the one JSON object on standard output.
func (o outcome) object(t *testing.T) map[string]any {
	t.Helper()
	objects := o.objects(t)
	require.Len(t, objects, 1, "%+v", o)
	return objects[0]
}

func (o outcome) objects(t *testing.T) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for line := range strings.Lines(o.stdout) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		objects = append(objects, object)
	}
	return objects
}

// fixture is a queue of its own, with a configuration.
type fixture struct {
	t     *testing.T
	file  string
	queue *store.Queue
	rdb   *redis.Client
	// number is that of the last claim.
	number uint64
}

const fixtureConfig = `
prefix: %s
redis: {url: %q}
queues:
  orders: {shards: %d, sink: events, max_message: 1KiB}
  reminders: {sink: events}
sinks:
  events: {type: nats, url: %q}
admin: {listen: %q}
log: {format: json}
`

func setup(t *testing.T) *fixture {
	return setupWith(t, 4, "nats://127.0.0.1:1", "")
}

func setupWith(t *testing.T, shards int, natsURL, admin string) *fixture {
	t.Helper()
	return setupAt(t, testenv.Redis(t), shards, natsURL, admin)
}

func setupAt(t *testing.T, url string, shards int, natsURL, admin string) *fixture {
	t.Helper()
	prefix := testenv.Name(t, "p")
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		keys := rdb.Scan(ctx, 0, prefix+":*", 1000).Iterator()
		for keys.Next(ctx) {
			_ = rdb.Del(ctx, keys.Val()).Err()
		}
		_ = rdb.Close()
	})
	f := &fixture{t: t, file: filepath.Join(t.TempDir(), "bridge.yaml"), rdb: rdb, queue: store.New(rdb, prefix, "orders")}
	text := fmt.Sprintf(fixtureConfig, prefix, url, shards, natsURL, admin)
	require.NoError(t, os.WriteFile(f.file, []byte(text), 0o600))
	return f
}

// run runs a command with the configuration and the queue orders; verb may be
// two words.
func (f *fixture) run(verb string, args ...string) outcome {
	f.t.Helper()
	all := append(strings.Fields(verb), "--config", f.file, "--queue", "orders")
	return bridge(f.t, "", append(all, args...)...)
}

// ok is run for a command that must succeed.
func (f *fixture) ok(verb string, args ...string) outcome {
	f.t.Helper()
	o := f.run(verb, args...)
	require.Equal(f.t, exitDone, o.code, "%s %v: %+v", verb, args, o)
	return o
}

// as is the fixture with a configuration that logs in to Redis as that user.
func (f *fixture) as(user string) *fixture {
	f.t.Helper()
	text, err := os.ReadFile(f.file)
	require.NoError(f.t, err)
	login := fmt.Sprintf("redis: {username: %s, password: PASSWORD, url: ", user)
	theirs := *f
	theirs.file = filepath.Join(f.t.TempDir(), "bridge.yaml")
	require.NoError(f.t, os.WriteFile(theirs.file, []byte(strings.Replace(string(text), "redis: {url: ", login, 1)), 0o600))
	return &theirs
}

// claim takes what is due in all shards, as a bridge would.
func (f *fixture) claim() map[int]message.Claim {
	f.t.Helper()
	layout, err := f.queue.AwaitLayout(f.t.Context())
	require.NoError(f.t, err)
	f.number++
	claims := map[int]message.Claim{}
	for shard := range layout.Shards {
		claim, err := f.queue.Shard(shard).Claim(f.t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "test", Number: f.number}, Max: 100, Timeout: time.Minute, Lease: time.Minute,
		})
		require.NoError(f.t, err)
		require.Equal(f.t, message.ClaimGranted, claim.State)
		claims[shard] = claim
	}
	return claims
}

// settle ends claims, each message in the same way.
func (f *fixture) settle(claims map[int]message.Claim, verdict message.Verdict) {
	f.t.Helper()
	for shard, claim := range claims {
		if len(claim.Messages) == 0 {
			continue // There is no such claim.
		}
		verdicts := make([]message.Verdict, len(claim.Messages))
		for i := range verdicts {
			verdicts[i] = verdict
		}
		stale, err := f.queue.Shard(shard).Settle(f.t.Context(), message.Settlement{Claim: claim, Verdicts: verdicts})
		require.NoError(f.t, err)
		require.False(f.t, stale)
	}
}

// bury schedules messages and moves them to the dead letters.
func (f *fixture) bury(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		f.ok("schedule", "--topic", "order.timeout", "--in", "0s", "--id", id, "body of "+id)
	}
	f.settle(f.claim(), message.Verdict{
		Verb: message.VerbDeadLetter, Reason: "permanent: too large", Attempts: message.Attempts{Failures: 1, Begun: 1},
	})
}

// process is a command that runs until it is told to end.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu    sync.Mutex
	text  strings.Builder
	lines chan string
	done  sync.WaitGroup
	stop  sync.Once
}

// start starts a command in an environment of its own, and collects all it prints.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), lines: make(chan string, 10_000)} //nolint:noctx // the cleanup kills it
	read, write, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, write, write
	require.NoError(t, p.cmd.Start())
	require.NoError(t, write.Close())
	p.done.Go(func() {
		defer close(p.lines)
		defer func() { _ = read.Close() }()
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			p.mu.Lock()
			_, _ = p.text.WriteString(scanner.Text() + "\n")
			p.mu.Unlock()
			p.lines <- scanner.Text()
		}
	})
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.wait()
	})
	return p
}

// output is what it printed so far.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await returns the next line that holds a text.
func (p *process) await(text string) string {
	p.t.Helper()
	timer := time.NewTimer(commandTimeout)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				require.FailNow(p.t, "ended without "+text, p.output())
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-timer.C:
			require.FailNow(p.t, "no "+text, p.output())
		}
	}
}

// awaitPolling returns once a bridge polls all the queues of [fixtureConfig]. They start side
// by side: the first to say so does not stand for the other.
func (p *process) awaitPolling() {
	p.t.Helper()
	for range strings.Count(fixtureConfig, "sink: events") {
		p.await(`"msg":"polling"`)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// wait returns the exit code.
func (p *process) wait() int {
	p.stop.Do(func() { _ = p.cmd.Wait() })
	p.done.Wait()
	return p.cmd.ProcessState.ExitCode()
}
