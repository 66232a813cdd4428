// Command breaks puts one fault after the other into the code, each of which breaks a rule, and
// says after how many seeds the simulation finds it: a simulation proves nothing about what it
// cannot find.
//
//	go run ./test/breaks -seeds 300
//
// With -tests, faults that survive are also tried with the tests of their package, which need servers, and those that fail count as found:
// .cache/bin/services go run ./test/breaks -tests.
//
// The faults are in breaks.txt: the rule, a name, the file, the text in it, and the text that
// replaces it; further changes, each with its file, if two rules cover each other. Lines before the
// file that begin with # say why. The old text must be in the file exactly once. The tree is not changed: the
// compiler gets the broken file instead, and the simulation's Redis a broken script. All faults
// are tried with a few seeds first, those of the poller in its own, cheaper simulation; the rest is
// then tried with all seeds, in the simulation of the whole. The first seed that fails ends a trial.
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
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/test/faults"
)

//go:embed breaks.txt
var list string

// least is which share of the faults must be found.
const least = 0.95

// fault is one break of a rule.
type fault struct{ faults.Fault }

func main() {
	seeds := flag.Int("seeds", 300, "how many seeds are tried for each fault")
	jobs := flag.Int("jobs", 1, "how many faults are tried at the same time")
	few := flag.Int("few", 40, "how many of them are tried first: most faults need no more")
	tests := flag.Bool("tests", false, "try what survives with the tests of its part of the product, and say which fails")
	only := flag.String("only", "", "a regular expression: the faults whose names it matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seeds, *few, *jobs, *only, *tests); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context, seeds, few, jobs int, only string, tests bool) error {
	names, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	all, err := faults.Read(list)
	if err != nil {
		return err
	}
	var named []fault
	for _, f := range all {
		if _, err := f.Apply(); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if names.MatchString(f.Head + " " + f.Name) {
			named = append(named, fault{f})
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
	began := time.Now()
	whole := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "exact", "overlay.json"), "-o", filepath.Join(dir, "whole.test"), "./internal/sim")
	if out, err := whole.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	left, broken := named, 0
	if few > 0 {
		left, broken = tryAll(ctx, dir, jobs, named, 1, min(few, seeds), false)
	}
	if seeds > few && ctx.Err() == nil {
		var more int
		left, more = tryAll(ctx, dir, jobs, left, few+1, seeds, true)
		broken += more
	}
	found := len(named) - len(left) - broken
	fmt.Printf("%d of %d found within %d seeds, in %s\n", found, len(named), seeds, time.Since(began).Round(time.Second))
	for _, f := range left {
		by := ""
		if tests && ctx.Err() == nil {
			var isFound bool
			if by, isFound = f.testedBy(ctx, dir); isFound {
				found++
			}
		}
		fmt.Printf("SURVIVES %-12s %-75s %s\n", f.Head, f.Name, by)
	}
	if float64(found) < least*float64(len(named)) {
		return errors.New("too few were found")
	}
	return nil
}

// tryAll tries those seeds with each fault, some faults at the same time, and returns the faults that
// survive them, and how many could not be tried.
func tryAll(ctx context.Context, dir string, jobs int, named []fault, from, to int, again bool) (left []fault, broken int) {
	survives, errs := make([]bool, len(named)), make([]error, len(named))
	var trials sync.WaitGroup
	room := make(chan struct{}, jobs)
	for i, f := range named {
		room <- struct{}{}
		trials.Go(func() {
			defer func() { <-room }()
			began := time.Now()
			told, err := f.try(ctx, dir, filepath.Join(dir, strconv.Itoa(i)), from, to, again)
			if errs[i] = err; err != nil {
				told = "CANNOT BE TRIED: " + err.Error()
			} else if survives[i] = told == ""; survives[i] {
				told = fmt.Sprintf("not found by seeds %d to %d", from, to)
			}
			fmt.Printf("%-12s %-75s %s (%.0f s)\n", f.Head, f.Name, told, time.Since(began).Seconds())
		})
	}
	trials.Wait()
	for i, f := range named {
		switch {
		case errs[i] != nil:
			broken++
		case survives[i]:
			left = append(left, f)
		}
	}
	return left, broken
}

// failed is what a simulation prints of the seed that has failed, or of why it has.
var (
	failed = regexp.MustCompile(`seed (\d+): ([^\n]{0,150})`)
	why    = regexp.MustCompile(`\bI\d+\b[^\n]{0,150}|panic[^\n]{0,150}|without end`)
)

// simulations are the packages whose TestSimulation looks for a fault: that of the poller alone,
// which costs less, where the fault is there.
func (f *fault) simulations() []string {
	if strings.HasPrefix(f.Changes[0].File, "internal/poller/") {
		return []string{"./internal/poller", "./internal/sim"}
	}
	return []string{"./internal/sim"}
}

// try runs a simulation with the fault, in a folder of its own: the cheapest, and again that of the whole.
// told is empty if it does not find anything.
func (f *fault) try(ctx context.Context, dir, own string, from, to int, again bool) (told string, err error) {
	c, simulations := f.Changes[0], f.simulations()
	simulation := simulations[0]
	if again && len(simulations) > 1 { // Which has not had the first ones.
		simulation, from = simulations[1], 1
	}
	if verb, isScript := strings.CutSuffix(filepath.Base(c.File), ".lua"); isScript && len(f.Changes) == 1 { // It needs no build.
		if filepath.Base(filepath.Dir(c.File)) == "shared" {
			verb = "shared"
		}
		change, err := json.Marshal(map[string]string{"verb": verb, "was": c.Was, "is": c.Is})
		if err != nil {
			return "", err
		}
		return runIn(ctx, filepath.Join(dir, "whole.test"), simulation, from, to, "SIM_FAULT="+string(change))
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(own) }()
	exact := filepath.Join(dir, "exact", "overlay.json") // It leaves nothing to chance.
	overlay, err := f.Write(exact, own)
	if err != nil {
		return "", err
	}
	return tryIn(ctx, overlay, filepath.Join(own, "sim.test"), simulation, from, to)
}

// testedBy says which test of the part of the product fails with the fault, if one does.
func (f *fault) testedBy(ctx context.Context, dir string) (told string, isFound bool) {
	overlay, err := f.Write("", dir)
	if err != nil {
		return err.Error(), false
	}
	tested := part.FindString(f.Changes[0].File) + "/..."
	// TestLongestScripts knows the scripts by their texts.
	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-failfast", "-timeout", "10m", "-skip", "^TestLongestScripts$", "-overlay", overlay,
		"github.com/delaybridge/delaybridge/"+tested).CombinedOutput()
	switch test := failedTest.FindSubmatch(out); {
	case err == nil:
		return "and the tests of " + tested, false
	case test != nil:
		return "but " + string(test[1]) + " of " + tested + " fails", true
	}
	return fmt.Sprintf("%v: %s", err, out[:min(len(out), 300)]), false
}

// part is the part of the product that a file belongs to.
var part = regexp.MustCompile(`^.*?(poller|outbox|store/recurring|store|jobs|membership|window)`)

var failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)

// tryIn builds a simulation with the fault, and runs it until a seed fails.
func tryIn(ctx context.Context, overlay, test, tested string, from, to int) (told string, err error) {
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
