package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/faults"
)

// killer is a test that may notice a mutant, or some of one program.
type killer struct {
	program, dir string
	args         []string
	tests        []string
	cpu, wall    time.Duration // without a mutant
	reaches      map[int]bool  // the mutants
}

// users are packages whose tests may notice mutants of another one.
var users = map[string][]string{
	"internal/poller/batch":         {"internal/poller"},
	"internal/poller/rate":          {"internal/poller"},
	"internal/poller/routes":        {"internal/poller"},
	"internal/window":               {"internal/poller"},
	"internal/outbox/relay":         {"internal/outbox/settler", "internal/outbox/auditor"},
	"internal/outbox/settler":       {"internal/outbox/auditor"},
	"internal/outbox/table":         {"internal/outbox/relay", "internal/outbox/settler", "internal/outbox/auditor"},
	"internal/engine/store/scripts": nil,
}

// build builds the test programs, and looks which mutants each of their tests reaches.
func build(ctx context.Context, dir string, overlay faults.Overlay, drawn []mutant, seeds int) (killers []*killer, err error) {
	file, err := overlay.Write(dir)
	if err != nil {
		return nil, err
	}
	folders, scripts := map[string]bool{}, map[int]bool{}
	for _, m := range drawn {
		folder := filepath.Dir(m.file)
		if filepath.Ext(m.file) == ".lua" {
			scripts[m.id] = true
			continue
		}
		for _, f := range append(users[folder], folder) {
			folders[f] = true
		}
	}
	programs := map[string]string{}
	for _, folder := range append(slices.Sorted(maps.Keys(folders)), "internal/sim") {
		programs[folder] = filepath.Join(dir, strings.ReplaceAll(folder, "/", "_")+".test")
		out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", programs[folder], module+folder).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", folder, err, out)
		}
		if folder != "internal/sim" {
			more, err := tests(ctx, programs[folder], folder)
			if err != nil {
				return nil, err
			}
			killers = append(killers, more...)
		}
	}
	simulation := &killer{program: programs["internal/sim"], dir: "internal/sim", args: []string{"-seeds", strconv.Itoa(seeds)}, tests: []string{"TestSimulation"}}
	killers = append(killers, simulation)
	if len(scripts) > 0 {
		killers = append(killers, &killer{program: simulation.program, dir: simulation.dir, args: []string{"-operations=10000", "-test.run=^TestConformance$/^in_process$"}})
	}
	killers = slices.DeleteFunc(killers, func(k *killer) bool {
		var is bool
		if is, err = k.measure(ctx, dir); err == nil && !is {
			fmt.Println("fails without a mutant, and is left out:", k.dir, k.tests)
		}
		return !is
	})
	for _, k := range killers {
		if k.dir == "internal/sim" {
			maps.Copy(k.reaches, scripts)
		}
	}
	return killers, err
}

// tests are those of a program, each a killer.
func tests(ctx context.Context, program, dir string) (killers []*killer, err error) {
	list := exec.CommandContext(ctx, program, "-test.list=^(Test|Fuzz|Example)")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("tests of %s: %w", dir, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		killers = append(killers, &killer{program: program, dir: dir, tests: []string{name}})
	}
	return killers, nil
}

// measure notes what the tests cost without a mutant, and which they reach. It reports whether they pass.
func (k *killer) measure(ctx context.Context, dir string) (passes bool, err error) {
	file := filepath.Join(dir, "reached")
	_ = os.Remove(file) // There may be none.
	k.cpu, k.wall = 10*time.Minute, 10*time.Minute
	began := time.Now()
	by, cpu, err := k.run(ctx, "MUTANTS_REACHED="+file)
	if by != "" || err != nil {
		return false, err
	}
	k.cpu, k.wall, k.reaches = cpu, time.Since(began), map[int]bool{}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	for number := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(number)
		if err != nil {
			return false, err
		}
		k.reaches[id] = true
	}
	return true, nil
}

// try says by what the mutant is noticed; "" if it is not. Those that cost little go first.
func (m mutant) try(ctx context.Context, dir string, killers []*killer) (by string, err error) {
	for _, k := range grouped(m.id, killers) {
		if by, err = k.kills(ctx, m.env); by != "" || err != nil {
			return by, err
		}
	}
	if filepath.Base(m.file) == "mend.lua" { // Shards that need it are made by the tests of bridge verify.
		return m.embedded(ctx, dir, "internal/engine/store/verify")
	}
	return "", nil
}

// quick is what the tests of one package may cost that run before others.
const quick = time.Second

// grouped are the tests that reach a mutant, of each program the quick ones and the others, by cost.
func grouped(id int, killers []*killer) (groups []*killer) {
	killers = slices.DeleteFunc(slices.Clone(killers), func(k *killer) bool { return !k.reaches[id] })
	slices.SortStableFunc(killers, func(a, b *killer) int { return int(a.cpu - b.cpu) })
	last := map[string]*killer{}
	for _, k := range killers {
		group := last[k.program]
		if group == nil || len(k.args) > 0 || group.cpu <= quick && group.cpu+k.cpu > quick {
			group = &killer{program: k.program, dir: k.dir, args: k.args}
			groups, last[k.program] = append(groups, group), group
		}
		group.tests, group.cpu, group.wall = append(group.tests, k.tests...), group.cpu+k.cpu, group.wall+k.wall
	}
	slices.SortStableFunc(groups, func(a, b *killer) int { return int(a.cpu - b.cpu) })
	return groups
}

// kills runs the tests with a mutant, and says which fails; it must not fail without it at that
// time, as it may where the machine is busy.
func (k *killer) kills(ctx context.Context, env string) (by string, err error) {
	for range 3 {
		if by, _, err = k.run(ctx, env); by == "" || err != nil {
			return by, err
		}
		without, _, err := k.run(ctx, "MUTANT=0")
		if without == "" || err != nil {
			return by, err
		}
	}
	return "", fmt.Errorf("%s %v: fails without a mutant", k.dir, k.tests)
}

// run runs the tests, and says which fails. So does one that takes five times the CPU, or hangs.
func (k *killer) run(ctx context.Context, env string) (by string, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*k.wall+time.Minute)
	defer cancel()
	args := append([]string{"-c", `ulimit -t $0; exec "$@"`, fmt.Sprint(5 + int(5*k.cpu.Seconds())), k.program, "-test.failfast"}, k.args...)
	if len(k.tests) > 0 {
		args = append(args, "-test.run=^("+strings.Join(k.tests, "|")+")$")
	}
	var out bytes.Buffer
	command := exec.CommandContext(ctx, "sh", args...) //nolint:gosec // it was built here
	command.Env, command.Dir, command.Stdout, command.Stderr = append(os.Environ(), env), k.dir, &out, &out
	command.WaitDelay = time.Second
	err = command.Run()
	exit := new(exec.ExitError)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return k.dir + ": hangs", 0, nil
	case err == nil:
		return "", command.ProcessState.UserTime() + command.ProcessState.SystemTime(), nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return "", 0, err
	case exit.ExitCode() < 0 || bytes.Contains(out.Bytes(), []byte("SIGXCPU")):
		return k.dir + ": takes five times as long", 0, nil
	}
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); strings.Contains(line, "never met") {
			return "", 0, nil // Few seeds do not have all pairs of conditions meet.
		} else if failure.MatchString(line) {
			return k.dir + ": " + line[:min(len(line), 120)], 0, nil
		}
	}
	return k.dir + ": fails", 0, nil
}

var failure = regexp.MustCompile(`^(--- FAIL|panic:)|seed `)

// embedded says which test of a package fails with the script in the program.
func (m mutant) embedded(ctx context.Context, dir, folder string) (by string, err error) {
	own, err := os.MkdirTemp(dir, "embedded")
	if err != nil {
		return "", err
	}
	overlay, err := faults.ReadOverlay("")
	if err == nil {
		err = overlay.Put(own, m.file, m.text)
	}
	if err != nil {
		return "", err
	}
	file, err := overlay.Write(own)
	if err != nil {
		return "", err
	}
	k := killer{program: "go", args: []string{"test", "-vet=off", "-failfast", "-timeout=5m", "-overlay", file, module + folder}, cpu: time.Minute, wall: 2 * time.Minute}
	by, _, err = k.run(ctx, "MUTANT=0")
	return by, err
}
