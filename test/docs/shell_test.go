package docs_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// patience is for what comes by itself: a start, a figure that changes. No command takes as long.
const patience = 5 * time.Minute

// shell is a reader's: one for a page, in a folder of its own, with the bridge in its PATH.
type shell struct {
	t     *testing.T
	dir   string
	ports map[string]string // by those that the page names
	dev   string            // flags of bridge dev, where the page names no port
	typed io.WriteCloser
	lines chan string
	count int
}

// newShell starts one. In what is typed there the ports that pages name are free ones.
func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir(), ports: map[string]string{}, lines: make(chan string, 10_000)}
	for _, port := range []string{"4222", "4333", "6379", "8080", "8081"} {
		s.ports[port] = testenv.Port(t)
	}
	s.dev = fmt.Sprintf("bridge dev --redis-port %s --nats-port %s --admin-port %s", s.ports["6379"], s.ports["4222"], s.ports["8080"])
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	s.write(".curlrc", "silent\nshow-error\nfail-with-body\nmax-time = 60\n")
	for _, name := range []string{"awk", "curl", "go", "jq", "openssl"} {
		testenv.Program(t, name)
	}
	cmd := exec.Command(testenv.Program(t, "bash")) //nolint:noctx // the cleanup ends it
	cmd.Dir = s.dir
	cmd.Env = []string{"CURL_HOME=" + s.dir, "PPROF_TMPDIR=" + s.dir, "LC_ALL=C.UTF-8", "CLONE=" + root}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); name == "PATH" {
			cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+value)
		} else if !strings.HasPrefix(name, "DELAYBRIDGE_") && !strings.HasPrefix(name, "LC_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.typed, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	go func() {
		defer close(s.lines)
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = s.typed.Close()
		hung := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait()
		hung.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // What may have outlived it.
		_ = read.Close()
	})
	// Its input ends with the test, however that ends, and what it has started with it.
	s.run("set -o pipefail; trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT")
	return s
}

// write writes a file into the folder.
func (s *shell) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// save writes what a page shows of a file that it names in the first line.
func (s *shell) save(b block) {
	if name, isNamed := strings.CutPrefix(b.lines[0], "# "); isNamed && b.language == "yaml" {
		s.write(name, s.here(strings.Join(b.lines, "\n")))
	}
}

// here is a text of a page with what is so here: free ports in the place of the usual ones, a
// clone that is not the folder in which is typed, the process that runs.
func (s *shell) here(text string) string {
	for _, usual := range slices.Sorted(maps.Keys(s.ports)) {
		local := regexp.MustCompile(`\b(127\.0\.0\.1|localhost|port)([:/ ])` + usual + `\b`)
		text = local.ReplaceAllString(text, "${1}${2}"+s.ports[usual])
	}
	text = regexp.MustCompile(`\bPID\b`).ReplaceAllString(text, "$$!")
	text = strings.ReplaceAll(text, "go run ./", `go run -C "$CLONE" ./`)
	text = strings.ReplaceAll(text, "go build -o ", `go build -C "$CLONE" -o "$PWD"/`)
	dev := s.dev
	if strings.Contains(text, "--nats-port") { // It is a second one, which would take ports that others on this machine need.
		dev = fmt.Sprintf("bridge dev --redis-port %s --admin-port %s", testenv.Port(s.t), testenv.Port(s.t))
	}
	return regexp.MustCompile(`bridge dev\b`).ReplaceAllString(text, dev)
}

// run runs a command and returns what it printed, and its exit code.
func (s *shell) run(text string) (output string, code int) {
	s.t.Helper()
	s.count++
	end := fmt.Sprintf("END OF COMMAND %d: ", s.count)
	_, err := fmt.Fprintf(s.typed, "{ %s\n} </dev/null\nprintf '\\n%s%%d\\n' $?\n", text, end)
	require.NoError(s.t, err)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var lines []string
	for {
		select {
		case line, ok := <-s.lines:
			require.True(s.t, ok, "%s: the shell has ended\n%s", text, strings.Join(lines, "\n"))
			if digits, isEnd := strings.CutPrefix(line, end); isEnd {
				code, err = strconv.Atoi(digits)
				require.NoError(s.t, err)
				return strings.Join(lines, "\n"), code
			}
			lines = append(lines, line)
		case <-timer.C:
			require.FailNow(s.t, "it does not end", "%s\n%s", text, strings.Join(lines, "\n"))
		}
	}
}

var (
	// daemon is a command that ends when it is told to, background one that the page itself
	// does not wait for.
	daemon     = regexp.MustCompile(`bridge (run|dev)\b`)
	background = regexp.MustCompile(`&(?:\s+#.*)?$`)
	redirected = regexp.MustCompile(`> *(\S+)`)
	// harmless is what may be typed on any machine, whatever follows.
	harmless = regexp.MustCompile(`^(?:(?:\./)?bridge|ask|awk|cat|curl|echo|export|for|go|grep|kill|mkdir|sed) |^\w+=\S+|^ask\(\) \{`)
	// look is a command that only looks: who does not see yet what comes by itself looks again.
	look = regexp.MustCompile(`^(?:(?:\S*/)?bridge (?:check|stats|list|get|shards list|dead list|jobs list|ready|inlets|recurring list)\b|curl -s \S+$|grep )`)
)

// typeIn does what a reader of the page does with a command.
func (s *shell) typeIn(c command) {
	s.t.Helper()
	require.Regexp(s.t, harmless, c.text, "line %d: not a command that may be typed on any machine; list it as one that cannot be typed, or add its program here", c.line)
	text := s.here(c.text)
	if daemon.MatchString(text) && !strings.Contains(text, "--demo") {
		s.start(text)
		return
	}
	deadline := time.Now().Add(patience / 2)
	for {
		output, code := s.run(text)
		trimmed := strings.TrimSpace(output)
		var problem string
		switch {
		case c.isShown && !sameAnswer(s.here(c.expected), output):
			problem = fmt.Sprintf("the page shows\n%s\nand it answers\n%s\n", c.expected, output)
		case c.expected == "" && code != 0:
			problem = fmt.Sprintf("exit code %d\n%s", code, output)
		case !c.isShown && strings.HasPrefix(text, "curl") && !json.Valid([]byte(trimmed)):
			problem = "the answer is no JSON: " + output
		default:
			return
		}
		if !look.MatchString(c.name()) || time.Now().After(deadline) {
			require.FailNow(s.t, problem, "line %d: %s", c.line, text)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-s.t.Context().Done():
			return
		}
	}
}

// start starts a bridge and waits until it says that it works.
func (s *shell) start(text string) {
	s.t.Helper()
	s.count++
	log := fmt.Sprintf("bridge-%d.log", s.count)
	if own := redirected.FindStringSubmatch(text); own != nil {
		log = own[1]
	}
	if !background.MatchString(text) {
		text = comment.ReplaceAllString(text, "") + " &"
	}
	output, code := s.run(">" + log + " 2>&1 " + text)
	require.Zero(s.t, code, "%s\n%s", text, output)
	said := func() string {
		text, _ := os.ReadFile(filepath.Join(s.dir, log))
		return string(text)
	}
	isUp := func() bool { return strings.Contains(said(), "polling") || strings.Contains(said(), "Ctrl-C ends it") }
	if !assert.Eventually(s.t, isUp, patience, 20*time.Millisecond, "%s has not started", text) {
		require.FailNow(s.t, said())
	}
}

var (
	// passing lines tell how far something is, and whether they come is chance.
	passing = regexp.MustCompile(`(?m)^.*; now at .*\n?`)
	// changing is what cannot be the same twice: ids, times, how long something took or is ahead,
	// estimates of bytes, which of many died first.
	changing = regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3} |\b\d+ ms late\b|\bpush-\d+\b|\b01[0-9A-HJKMNP-TV-Z]{24}\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?Z|\(in [^)]*\)|\b\d+(\.\d+)? ([KMG]i)?B\b|\b\d+%|\b\d+(\.\d+)?(ns|us|µs|ms|s|m|h)\b`)
	blanks   = regexp.MustCompile(`\s+`)
)

// sameAnswer compares what a page shows with an answer. Blanks do not count, since pages break
// long lines and columns grow with what is in them; "…" is what the page leaves out.
func sameAnswer(expected, actual string) bool {
	plain := func(text string) string {
		text = changing.ReplaceAllString(passing.ReplaceAllString(text, ""), "~")
		return blanks.ReplaceAllString(text, "")
	}
	parts := strings.Split(plain(expected), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(`^(?s:` + strings.Join(parts, ".*") + `)$`).MatchString(plain(actual))
}

func TestSameAnswer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		expected, actual string
		want             bool
	}{
		{"A  B\nx  2\n", "A       B\nx       2", true},
		{"A  B\nx  2\n", "A       B\nx       3", false},
		{"done, job 01M85TZ04NPPX12SF3Q6YVTVXR at 2026-11-24T03:52:35.639Z (in 1h12m)", "done, job 01M85TZ50H311B26KJ5C2PVCCK at 2027-01-01T00:00Z (in 3s)", true},
		{`{"a": 1, …, "c": 3}`, `{"a":1,"b":2,"c":3}`, true},
		{`{"a": 1, …, "c": 3}`, `{"a":1,"b":2,"c":4}`, false},
		{"bridge: job X: 10 matched, 5 done; now at push-5\ndone", "done", true},
		{"done", "done\nerror", false},
	} {
		assert.Equal(t, test.want, sameAnswer(test.expected, test.actual), test.expected)
	}
}

func port(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}
