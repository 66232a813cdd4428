package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bridgeCommand runs a command of the bridge. Exit code 2 says that the input is
// wrong, 3 that a message's state is; a crash of Go exits with 2, too, and says so.
func (f *inputs) bridgeCommand(ctx context.Context, stdin string, args ...string) (a answer, stdout string) {
	const longest = time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	command := exec.CommandContext(ctx, f.binary, args...)
	var out, errs bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return answer{broken: true, text: err.Error()}, ""
	}
	code := command.ProcessState.ExitCode()
	text := errs.String()
	crashed := code < 0 || strings.Contains(text, "goroutine ") || strings.Contains(text, "panic: ")
	const wrong, state = 2, 3
	return answer{refused: !crashed && (code == wrong || code == state), broken: crashed || code == 1, text: text}, out.String()
}

// flagTrials collects calls of commands.
type flagTrials struct {
	*inputs
	list []trial
}

func (t *flagTrials) add(names []string, command string, args ...string) {
	args = append([]string{command, "--config", t.world.Bridge.Config, "--queue", t.world.Queue()}, args...)
	if strings.Contains(strings.Join(args, ""), "\x00") {
		return // No argument can have it.
	}
	t.list = append(t.list, trial{fmt.Sprintf("%.80q", args), names, func(ctx context.Context) answer {
		a, _ := t.bridgeCommand(ctx, "", args...)
		return a
	}})
}

// schedule would put a message in the place of the first that is kept.
func (t *flagTrials) schedule(field string, args ...string) {
	names := append(fieldNames(field), "--"+field, "due")
	t.add(names, "schedule", append([]string{"--conflict", "replace"}, args...)...)
}

// flags runs commands with bad flags.
func (f *inputs) flags(context.Context) ([]trial, error) {
	t, rnd := &flagTrials{inputs: f}, f.random("flags")
	some := func(all []string) []string { // Each is a process.
		const most = 12
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:min(len(all), most)]
	}
	good := []string{"--id", keptID, "--topic", f.world.Topic, "--in", "1h", "bad"}
	for _, text := range some(badNames(rnd)) {
		t.schedule("id", "--id="+text, "--topic", f.world.Topic, "--in", "1h", "bad")
		t.schedule("key", append(good, "--key="+text)...)
		t.add(fieldNames("id"), "cancel", "--id="+text)
	}
	for _, text := range some(badTopics(rnd)) {
		t.schedule("topic", "--id", keptID, "--topic="+text, "--in", "1h", "bad")
	}
	for _, text := range some(badTags(rnd)) {
		t.schedule("tag", append(good, "--tag="+text)...)
	}
	for _, text := range some(badHeaderNames()) {
		if !strings.Contains(text, "=") {
			t.schedule("header", append(good, "--header="+text+"=a")...)
		}
	}
	for _, text := range []string{"a", "", "a=b\x7f"} {
		t.schedule("header", append(good, "--header="+text)...)
	}
	for _, text := range some(badDurations()) {
		t.schedule("spread", append(good, "--spread="+text)...)
		t.schedule("late", append(good, "--late="+text)...)
	}
	for _, text := range append(some(badDurations()), "87841h") {
		t.schedule("in", "--id", keptID, "--topic", f.world.Topic, "--in="+text, "bad")
		t.add([]string{"--in", "due"}, "reschedule", "--id", keptID, "--in="+text)
	}
	for _, text := range append(badTimes(), "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z") {
		t.add([]string{"--at", "due"}, "reschedule", "--id", keptID, "--at="+text)
	}
	t.badCommands()
	return t.list, nil
}

// badCommands are flags that are missing, unknown, twice, or wrong together.
func (t *flagTrials) badCommands() {
	id, topic, in := []string{"--id", keptID}, []string{"--topic", t.world.Topic}, []string{"--in", "1h"}
	good := slices.Concat(id, topic, in, []string{"bad"})
	t.schedule("topic", slices.Concat(id, in, []string{"bad"})...)
	t.schedule("in", slices.Concat(id, topic, []string{"bad"})...)
	t.schedule("body", slices.Concat(id, topic, in)...)
	for field, args := range map[string][]string{
		"late-then": {"--late", "1h", "--late-then", "burn"}, "late": {"--late", "0s"}, "conflict": {"--conflict", "maybe"}, "unknown": {"--unknown", "a"},
		"at": {"--at", "2030-01-01T00:00:00Z"}, "output": {"--output", "xml"}, "more": {"more"}, "queue": {"--queue", "nothing"},
		"configuration": {"--config", "/nonexistent.yaml"},
	} {
		t.schedule(field, append(good, args...)...)
	}
	for _, limit := range []string{"0", "-1", "NaN", "99999999999999999999", "1.5"} {
		t.add([]string{"limit"}, "list", "--limit="+limit)
	}
	for _, by := range []string{"--1h", "+-1h", "1", "soon"} {
		t.add([]string{"--by"}, "reschedule", "--id", keptID, "--by="+by)
	}
	t.add([]string{"state"}, "list", "--state", "lost")
	t.add([]string{"--id"}, "cancel")
	t.add([]string{"--in"}, "reschedule", "--id", keptID)
	t.add([]string{"topic"}, "pause", "--topic", "a b")
	t.add([]string{"step"}, "forecast", "--step", "0s")
}

// batch schedules bad lines with one command.
func (f *inputs) batch(ctx context.Context) (list []trial, err error) {
	lines := append(f.badSchedules(), documents(f.goodMembers(), f.random("batch"))...)
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line.text + "\n")
	}
	file := filepath.Join(f.world.Dir, "lines.ndjson")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	whole, out := f.bridgeCommand(ctx, "", "schedule", "--config", f.world.Bridge.Config, "--queue", f.world.Queue(), "-o", "json", "--batch", file)
	answers := map[int]answer{}
	for line := range strings.Lines(out) {
		var got struct {
			Line   int
			Status string
			Error  *struct{ Code, Field, Detail string }
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		a := answer{text: got.Status}
		if got.Error != nil {
			a = answer{refused: got.Error.Code == "invalid", text: got.Error.Detail}
			if got.Error.Field != "" {
				a.text = got.Error.Field + ": " + got.Error.Detail
			}
		}
		answers[got.Line] = a
	}
	for i, line := range lines {
		list = append(list, trial{line.what, line.names, func(context.Context) answer {
			a, found := answers[i+1]
			if !found || whole.broken {
				return answer{broken: true, text: "no answer: " + whole.text}
			}
			return a
		}})
	}
	return list, nil
}
