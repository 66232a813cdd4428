package inputs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// flagsEntrance are the flags of the bridge's commands.
type flagsEntrance struct {
	aim
	line commandLine
}

func (e flagsEntrance) name() string { return "flags" }

// flagInputs collects calls of commands.
type flagInputs struct {
	line  commandLine
	topic string
	list  []input
}

func (t *flagInputs) add(names []string, command string, args ...string) {
	args = t.line.args(command, args...)
	if !utf8.ValidString(strings.Join(args, "")) {
		names = append(names, notText)
	}
	if strings.Contains(strings.Join(args, ""), "\x00") {
		return // No argument can have it.
	}
	t.list = append(t.list, input{fmt.Sprintf("%.80q", args), names, func(ctx context.Context) answer {
		a, _ := t.line.run(ctx, args)
		return a
	}})
}

// schedule would put a message in the place of the first that is kept.
func (t *flagInputs) schedule(field string, args ...string) {
	names := append(fieldNames(field), "--"+field)
	t.add(names, "schedule", append([]string{"--conflict", "replace"}, args...)...)
}

func (e flagsEntrance) inputs(context.Context) ([]input, error) {
	t, rnd := &flagInputs{line: e.line, topic: e.topic}, e.random("flags")
	some := func(all []string) []string { // Each is a process.
		const most = 12
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:min(len(all), most)]
	}
	good := []string{"--id", keptID, "--topic", e.topic, "--in", "1h", "bad"}
	for _, text := range some(badNames(rnd)) {
		t.schedule("id", "--id="+text, "--topic", e.topic, "--in", "1h", "bad")
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
		t.add([]string{"--in", "due"}, "schedule", "--conflict", "replace", "--id", keptID, "--topic", e.topic, "--in="+text, "bad")
		t.add([]string{"--in", "due"}, "reschedule", "--id", keptID, "--in="+text)
	}
	for _, text := range append(badTimes(), "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z") {
		t.add([]string{"--at", "due"}, "reschedule", "--id", keptID, "--at="+text)
	}
	t.badCommands()
	return t.list, nil
}

// badCommands are flags that are missing, unknown, twice, or wrong together.
func (t *flagInputs) badCommands() {
	id, topic, in := []string{"--id", keptID}, []string{"--topic", t.topic}, []string{"--in", "1h"}
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
	t.add([]string{"within"}, "forecast", "--within=-1s")
}
