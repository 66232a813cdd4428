package inputs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/config"
)

// devProcess is a `bridge dev` with a clock that can be moved.
type devProcess struct {
	command *exec.Cmd
	dir     string
	admin   string
	rdb     redis.UniversalClient
	ended   chan struct{}
}

// configFlag is where it tells its configuration.
var configFlag = regexp.MustCompile(`--config (\S+)`)

// develop starts it in a new folder below dir, and learns its addresses from the file that it prints.
func develop(ctx context.Context, binary, dir string) (*devProcess, error) {
	d := &devProcess{dir: filepath.Join(dir, "dev"), ended: make(chan struct{})}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	d.command = exec.CommandContext(ctx, binary, "dev", "--memory")
	d.command.Env = append(os.Environ(), "TMPDIR="+d.dir)
	d.command.Stdout, d.command.Stderr = log, log
	d.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = d.command.Wait() // The log says why it ended.
		close(d.ended)
	}()
	for {
		said, err := os.ReadFile(log.Name())
		if match := configFlag.FindSubmatch(said); match != nil && strings.Contains(string(said), "Ctrl-C") {
			return d, d.read(string(match[1]))
		}
		select {
		case <-d.ended:
			return nil, fmt.Errorf("bridge dev has ended: %s", said)
		case <-ctx.Done():
			return d, errors.Join(err, ctx.Err(), errors.New(string(said)))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (d *devProcess) read(file string) error {
	cfg, err := config.Load(file, nil)
	if err != nil {
		return err
	}
	d.admin = cfg.Admin.Listen
	d.rdb, err = cfg.Redis.Open("inputs")
	return err
}

// holds says by how much the clock is wrong. What the question took is no fault of the clock.
func (d *devProcess) holds(ctx context.Context) (string, error) {
	const fine = 10 * time.Second
	var clock struct{ Now time.Time }
	asked := time.Now()
	a := send(ctx, http.MethodGet, "http://"+d.admin+"/dev/clock", "", nil)
	if err := json.Unmarshal([]byte(a.text), &clock); err != nil {
		return "", fmt.Errorf("%w: %s", err, a.text)
	}
	if clock.Now.Before(asked.Add(-fine)) || time.Until(clock.Now) > fine {
		return fmt.Sprint("a clock that is ahead by ", time.Until(clock.Now).Round(time.Second)), nil
	}
	return "a right clock", nil
}

func (d *devProcess) close() {
	_ = d.command.Process.Signal(syscall.SIGTERM)
	<-d.ended
	if d.rdb != nil {
		_ = d.rdb.Close()
	}
}

// clockEntrance is the call that moves the clock of `bridge dev`.
type clockEntrance struct {
	seed
	admin string
}

func (e clockEntrance) name() string { return "clock" }

func (e clockEntrance) inputs(context.Context) (list []input, err error) {
	add := func(what, body string, names ...string) {
		list = append(list, input{what, names, func(ctx context.Context) answer {
			return send(ctx, http.MethodPost, "http://"+e.admin+"/dev/clock/advance", body, nil)
		}})
	}
	for _, bad := range documents([]member{{"by", `"1h"`}}, e.random("clock")) {
		add(bad.what, bad.text, append(bad.names, "by:", `"by"`, "by ")...)
	}
	for _, text := range append(badDurations(), "", "-1ns", "-1h", "87841h", "2562047h", "106751d") {
		add("by "+text, object([]member{{"by", quote(text)}}), "by ")
	}
	add("empty", "", `"by"`)
	add("nothing", "{}", "by ")
	add("null", "null", "by ")
	add("long", `{"by": "1h"`+strings.Repeat(" ", 2000)+"}", `"by"`)
	return list, nil
}
