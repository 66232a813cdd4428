// Command breaks puts one fault after the other into the code, each of which breaks a rule, and
// says after how many seeds the simulation finds it: what a simulation cannot find, it does
// not prove.
//
//	go run ./test/breaks -seeds 300
//
// The faults are in breaks.txt: the rule, a name, the file, what stands there, and what is put in
// its place. What stands there must be in the file exactly once. The tree is not changed: the
// compiler is given the broken file in place of the file, and the simulation's Redis a broken script. A few seeds are tried with all faults
// first, and with those of the poller only its own simulation, which costs less; then all seeds
// with what is left. The first seed that fails ends a trial.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed breaks.txt
var list string

// least is which share of the faults must be found.
const least = 0.95

// fault is one break of a rule.
type fault struct{ rule, name, file, was, is string }

func main() {
	seeds := flag.Int("seeds", 300, "how many seeds are tried for each fault")
	only := flag.String("only", "", "a regular expression: the faults whose names it matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seeds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

// few is how many seeds are tried first: most faults need no more.
const few = 40

func run(ctx context.Context, seeds int, only string) error {
	names, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	all, err := parse(list)
	if err != nil {
		return err
	}
	var faults []fault
	for _, f := range all {
		if _, err := f.breaks(); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if names.MatchString(f.rule + " " + f.name) {
			faults = append(faults, f)
		}
	}
	dir, err := os.MkdirTemp("", "breaks")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if out, err := exec.CommandContext(ctx, "go", "run", "./internal/sim/overlay", filepath.Join(dir, "exact")).CombinedOutput(); err != nil {
		return fmt.Errorf("overlay: %w\n%s", err, out)
	}
	began, left := time.Now(), faults
	whole := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "exact", "overlay.json"), "-o", filepath.Join(dir, "whole.test"), "./internal/sim")
	if out, err := whole.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	for from, to := 1, min(few, seeds); from <= seeds && len(left) > 0; from, to = to+1, seeds {
		if left, err = tryAll(ctx, dir, left, from, to); err != nil {
			return err
		}
	}
	found := len(faults) - len(left)
	fmt.Printf("%d of %d found within %d seeds, in %s\n", found, len(faults), seeds, time.Since(began).Round(time.Second))
	for _, f := range left {
		fmt.Printf("SURVIVES %-12s %s\n", f.rule, f.name)
	}
	if float64(found) < least*float64(len(faults)) {
		return errors.New("too few were found")
	}
	return nil
}

// tryAll tries those seeds with each fault, and returns the faults that survive them.
func tryAll(ctx context.Context, dir string, faults []fault, from, to int) (left []fault, err error) {
	for _, f := range faults {
		began := time.Now()
		told, err := f.try(ctx, dir, from, to)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if told == "" {
			left = append(left, f)
			told = fmt.Sprintf("not found by seeds %d to %d", from, to)
		}
		fmt.Printf("%-12s %-75s %s (%.0f s)\n", f.rule, f.name, told, time.Since(began).Seconds())
	}
	return left, nil
}

// parse reads the list.
func parse(text string) (faults []fault, err error) {
	for part := range strings.SplitSeq("\n"+text, "\n== ") {
		head, rest, ok := strings.Cut(part, "\n")
		rule, name, isFault := strings.Cut(head, " | ")
		if !isFault {
			continue
		}
		file, change, okFile := strings.Cut(rest, "\n--- was\n")
		was, is, okChange := strings.Cut(change, "\n+++ is")
		if !ok || !okFile || !okChange {
			return nil, fmt.Errorf("%q has no file, or no change", head)
		}
		faults = append(faults, fault{rule, name, file, was, strings.TrimPrefix(is, "\n")})
	}
	return faults, nil
}

// overlay tells the compiler of the broken file, beside what has the simulation leave nothing to chance.
func (f *fault) overlay(dir, path, broken string) error {
	var replaced struct{ Replace map[string]string }
	text, err := os.ReadFile(filepath.Join(dir, "exact", "overlay.json"))
	if err == nil {
		err = json.Unmarshal(text, &replaced)
	}
	if err == nil {
		replaced.Replace[path] = broken
		text, err = json.Marshal(replaced)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600)
	}
	return err
}

// failed is what a simulation prints of the seed that has failed, or of why it has.
var (
	failed = regexp.MustCompile(`seed (\d+): ([^\n]{0,150})`)
	why    = regexp.MustCompile(`\bI\d+\b[^\n]{0,150}|panic[^\n]{0,150}|without end`)
)

// simulations are the packages whose TestSimulation looks for a fault: that of the poller alone,
// which costs less, where the fault is there.
func (f *fault) simulations() []string {
	if strings.HasPrefix(f.file, "internal/poller/") {
		return []string{"./internal/poller", "./internal/sim"}
	}
	return []string{"./internal/sim"}
}

// breaks is the file with the fault in it.
func (f *fault) breaks() (text []byte, err error) {
	if text, err = os.ReadFile(f.file); err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(f.was)); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times, want once", f.file, f.was, n)
	}
	return bytes.Replace(text, []byte(f.was), []byte(f.is), 1), nil
}

// try runs the simulations with the fault. told is empty where none finds anything.
func (f *fault) try(ctx context.Context, dir string, from, to int) (told string, err error) {
	text, err := f.breaks()
	if err != nil {
		return "", err
	}
	if verb, isScript := strings.CutSuffix(filepath.Base(f.file), ".lua"); isScript { // It needs no build.
		if filepath.Base(filepath.Dir(f.file)) == "shared" {
			verb = "shared"
		}
		change, err := json.Marshal(map[string]string{"verb": verb, "was": f.was, "is": f.is})
		if err != nil {
			return "", err
		}
		return runIn(ctx, filepath.Join(dir, "whole.test"), "./internal/sim", from, to, "SIM_FAULT="+string(change))
	}
	broken := filepath.Join(dir, "broken"+filepath.Ext(f.file))
	if err := os.WriteFile(broken, text, 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(f.file)
	if err != nil {
		return "", err
	}
	if err := f.overlay(dir, path, broken); err != nil {
		return "", err
	}
	for i, simulation := range f.simulations() {
		switch {
		case i > 0 && from == 1: // The next time: it is dear.
			return "", nil
		case i > 0:
			from = 1
		}
		if told, err = tryIn(ctx, dir, simulation, from, to); told != "" || err != nil {
			break
		}
	}
	return told, err
}

// tryIn builds a simulation with the fault, and runs it until a seed fails.
func tryIn(ctx context.Context, dir, tested string, from, to int) (told string, err error) {
	overlay, test := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", test, tested).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return runIn(ctx, test, tested, from, to)
}

// runIn runs a simulation that is built.
func runIn(ctx context.Context, test, tested string, from, to int, env ...string) (told string, err error) {
	var out bytes.Buffer
	simulation := exec.CommandContext(ctx, test, "-test.run", "^TestSimulation$", "-first", strconv.Itoa(from), "-seeds", strconv.Itoa(to-from+1), "-test.timeout", "20m")
	simulation.Env = append(os.Environ(), env...)
	simulation.Stdout, simulation.Stderr, simulation.Dir = &out, &out, tested
	err = simulation.Run()
	if exit := new(exec.ExitError); err == nil || !errors.As(err, &exit) {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	seed := failed.FindSubmatch(out.Bytes())
	switch {
	case seed != nil:
		reason := seed[2]
		if bytes.HasPrefix(reason, []byte("run it again")) {
			reason = why.Find(out.Bytes())
		}
		return fmt.Sprintf("found in %s by seed %s: %s", filepath.Base(tested), seed[1], reason), nil
	case why.Match(out.Bytes()): // A failure in a bubble ends the test at once.
		return fmt.Sprintf("found in %s: %s", filepath.Base(tested), why.Find(out.Bytes())), nil
	case bytes.Contains(out.Bytes(), []byte("never met")): // Few seeds do not have all pairs of conditions meet.
		return "", nil
	}
	return "", fmt.Errorf("%w: %s", err, out.Bytes())
}
