package main

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

	"github.com/delaybridge/delaybridge/delay"
)

// developing is a `bridge dev` with a clock that can be moved.
type developing struct {
	command *exec.Cmd
	dir     string
	admin   string
	rdb     *redis.Client
}

// clock tries the calls that move the clock of `bridge dev`.
func (f *inputs) clock(ctx context.Context) error {
	d, err := f.develop(ctx)
	if d != nil {
		defer d.close()
	}
	if err != nil {
		return err
	}
	client, err := delay.NewClient(d.rdb, "orders")
	if err != nil {
		return err
	}
	kept, err := keep(ctx, client, "order.kept", d.holds)
	if err != nil {
		return err
	}
	return f.enter(ctx, entrance{"clock", func(context.Context) ([]trial, error) { return f.badAdvances(d.admin), nil }}, kept, d.admin)
}

var (
	configFlag  = regexp.MustCompile(`--config (\S+)`)
	redisOfFile = regexp.MustCompile(`(redis://[^"\s]+)`)
	adminOfFile = regexp.MustCompile(`listen: "?(127[^"\s]+)`)
)

// develop starts it, and learns its addresses from the file that it prints.
func (f *inputs) develop(ctx context.Context) (*developing, error) {
	d := &developing{dir: filepath.Join(f.world.Dir, "dev")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	d.command = exec.CommandContext(ctx, f.binary, "dev", "--memory")
	d.command.Env = append(os.Environ(), "TMPDIR="+d.dir)
	d.command.Stdout, d.command.Stderr = log, log
	d.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.command.Start(); err != nil {
		return nil, err
	}
	for {
		said, err := os.ReadFile(log.Name())
		if match := configFlag.FindSubmatch(said); match != nil && strings.Contains(string(said), "Ctrl-C") {
			return d, d.read(string(match[1]))
		}
		if failure := pause(ctx, 50*time.Millisecond); failure != nil { //nolint:mnd // often enough
			return d, errors.Join(err, failure, errors.New(string(said)))
		}
	}
}

func (d *developing) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	url, admin := redisOfFile.Find(text), adminOfFile.FindSubmatch(text)
	if url == nil || admin == nil {
		return fmt.Errorf("no addresses in %s", text)
	}
	options, err := redis.ParseURL(string(url))
	if err != nil {
		return err
	}
	d.admin, d.rdb = string(admin[1]), redis.NewClient(options)
	return nil
}

// holds says by how much the clock is wrong.
func (d *developing) holds(ctx context.Context) (string, error) {
	const fine = 10 * time.Second
	var clock struct{ Now time.Time }
	a := send(ctx, http.MethodGet, "http://"+d.admin+"/dev/clock", "", nil)
	if err := json.Unmarshal([]byte(a.text), &clock); err != nil {
		return "", fmt.Errorf("%w: %s", err, a.text)
	}
	if ahead := time.Until(clock.Now).Round(time.Second); ahead.Abs() > fine {
		return fmt.Sprint("a clock that is ahead by ", ahead), nil
	}
	return "a right clock", nil
}

func (d *developing) close() {
	_ = d.command.Process.Signal(syscall.SIGTERM)
	_ = d.command.Wait()
	if d.rdb != nil {
		_ = d.rdb.Close()
	}
}

// badAdvances are requests that must not move the clock.
func (f *inputs) badAdvances(admin string) (list []trial) {
	add := func(what, body string, names ...string) {
		list = append(list, trial{what, names, func(ctx context.Context) answer {
			return send(ctx, http.MethodPost, "http://"+admin+"/dev/clock/advance", body, nil)
		}})
	}
	for _, bad := range documents([]member{{"by", `"1h"`}}, f.random("clock")) {
		add(bad.what, bad.text, append(bad.names, "by:", `"by"`, "by ")...)
	}
	for _, text := range append(badDurations(), "", "-1ns", "-1h", "87841h", "2562047h", "106751d") {
		add("by "+text, object([]member{{"by", quote(text)}}), "by ")
	}
	add("empty", "", `"by"`)
	add("nothing", "{}", "by ")
	add("null", "null", "by ")
	add("long", `{"by": "1h"`+strings.Repeat(" ", 2000)+"}", `"by"`)
	return list
}
