// Command breaks puts one fault after the other into the code, each of which breaks a rule, and
// says after how many seeds the simulation finds it: what a simulation cannot find, it does
// not prove.
//
//	go run ./test/breaks -seeds 300
//
// The faults are in breaks.txt: the rule, a name, the file, what stands there, and what is put in
// its place. What stands there must be in the file exactly once. The tree is not changed: the
// compiler is given the broken file in place of the file.
package main

import (
	"bytes"
	"cmp"
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

func run(ctx context.Context, seeds int, only string) error {
	names, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	faults, err := parse(list)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "breaks")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if out, err := exec.CommandContext(ctx, "go", "run", "./internal/sim/overlay", filepath.Join(dir, "exact")).CombinedOutput(); err != nil {
		return fmt.Errorf("overlay: %w\n%s", err, out)
	}
	found, tried := 0, 0
	var survivors []string
	for _, f := range faults {
		if !names.MatchString(f.name) {
			continue
		}
		tried++
		began := time.Now()
		told, err := f.try(ctx, dir, seeds)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", f.name, err)
		case told == "":
			survivors = append(survivors, f.name)
			told = "SURVIVES"
		default:
			found++
		}
		fmt.Printf("%-12s %-75s %s (%.0f s)\n", f.rule, f.name, told, time.Since(began).Seconds())
	}
	fmt.Printf("%d of %d found; not found: %s\n", found, tried, cmp.Or(strings.Join(survivors, "; "), "none"))
	if float64(found) < least*float64(tried) {
		return errors.New("too few were found")
	}
	return nil
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

// failed is what the simulation prints of the seed that has failed, and why is the reason.
var (
	failed = regexp.MustCompile(`seed (\d+)`)
	why    = regexp.MustCompile(`\bI\d+\b[^\n]{0,90}|panic[^\n]{0,90}|without end`)
)

// simulations are the packages whose TestSimulation looks for a fault: that of the poller alone,
// which costs less, where the fault is there.
func (f *fault) simulations() []string {
	if strings.HasPrefix(f.file, "internal/poller/") {
		return []string{"./internal/poller", "./internal/sim"}
	}
	return []string{"./internal/sim"}
}

// try builds a simulation with the fault, and runs it. told is empty where none finds anything.
func (f *fault) try(ctx context.Context, dir string, seeds int) (told string, err error) {
	for _, simulation := range f.simulations() {
		if told, err = f.tryIn(ctx, dir, simulation, seeds); told != "" || err != nil {
			break
		}
	}
	return told, err
}

func (f *fault) tryIn(ctx context.Context, dir, tested string, seeds int) (told string, err error) {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), f.was); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once", f.file, f.was, n)
	}
	broken, overlay, test := filepath.Join(dir, "broken"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(text), f.was, f.is, 1)), 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(f.file)
	if err != nil {
		return "", err
	}
	if err := f.overlay(dir, path, broken); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", test, tested).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	var out bytes.Buffer
	simulation := exec.CommandContext(ctx, test, "-test.run", "^TestSimulation$", "-seeds", strconv.Itoa(seeds), "-test.timeout", "20m")
	simulation.Stdout, simulation.Stderr, simulation.Dir = &out, &out, tested
	err = simulation.Run()
	if exit := new(exec.ExitError); err == nil || !errors.As(err, &exit) {
		return "", err
	}
	told = "found in " + filepath.Base(tested)
	if seed := failed.FindSubmatch(out.Bytes()); seed != nil {
		told += " by seed " + string(seed[1])
	}
	return told + ": " + string(why.Find(out.Bytes())), nil
}
