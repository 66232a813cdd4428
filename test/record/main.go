// Command record shows a defect of docs/track-record.md again: the test that holds it passes, and fails with the
// defect put back into today's code.
//
//	go run ./test/record 7
//
// The defects are in record.txt: a number and what a user would have seen; then what the page's table says of it, the
// test, and the servers that it needs; then the change that puts the defect back, as in test/breaks/breaks.txt, or
// the name of one there. The tree is not changed: the compiler is given the broken files in place of those of the tree.
// Without a number all are shown, one after the other. Build the driver of the servers first (make services); make repro
// N=7 does.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/faults"
)

const (
	module = "github.com/delaybridge/delaybridge/"
	// apart is the module whose tests need what others make.
	apart = "test/thirdparty"
)

//go:embed record.txt
var list string

// defect is an entry of the list.
type defect struct {
	faults.Fault
	pkg, test string   // the test that holds it: its package and what -run takes
	args      []string // of the test
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context, numbers []string) error {
	breaks, err := os.ReadFile("test/breaks/breaks.txt")
	if err != nil {
		return err
	}
	defects, err := read(list, string(breaks))
	if err != nil {
		return err
	}
	shown, failed := 0, 0
	for _, d := range defects {
		isAsked := slices.Contains(numbers, d.Head)
		if len(numbers) > 0 && !isAsked {
			continue
		}
		shown++
		fmt.Printf("%s: %s\n", d.Head, d.Name)
		if len(d.Changes) == 0 {
			fmt.Println("  not shown again:", d.Fields["unshown"])
			continue
		}
		if err := d.show(ctx); err != nil {
			failed++
			fmt.Println("  NOT SHOWN:", err)
		}
	}
	switch {
	case shown == 0:
		return fmt.Errorf("no defect has the number %s", strings.Join(numbers, " "))
	case failed > 0:
		return fmt.Errorf("%d defects are not shown", failed)
	}
	return nil
}

// read reads the list; a defect may have its change in the list of the breaks.
func read(list, breaks string) (defects []defect, err error) {
	broken, err := faults.Read(breaks)
	if err != nil {
		return nil, err
	}
	all, err := faults.Read(list)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		d := defect{Fault: f}
		if words := strings.Fields(f.Fields["test"]); len(words) > 1 {
			d.pkg, d.test, d.args = words[0], words[1], words[2:]
		}
		if name := f.Fields["break"]; name != "" {
			i := slices.IndexFunc(broken, func(b faults.Fault) bool { return b.Name == name })
			if i < 0 || len(d.Changes) > 0 {
				return nil, fmt.Errorf("%s: breaks.txt has no %q, or there is a change beside it", f.Head, name)
			}
			d.Changes = broken[i].Changes
		}
		defects = append(defects, d)
	}
	return defects, nil
}

// show runs the test without the defect and with it.
func (d *defect) show(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := d.Write("", dir)
	if err != nil {
		return err
	}
	name := filepath.Base(d.pkg) + "." + d.test
	began := time.Now()
	switch failure, err := d.try(ctx, ""); {
	case err != nil:
		return err
	case failure != "":
		return fmt.Errorf("%s fails without the defect: %s", name, failure)
	}
	fmt.Printf("  without it: ok   %s (%.1f s)\n", name, time.Since(began).Seconds())
	switch failure, err := d.try(ctx, overlay); {
	case err != nil:
		return err
	case failure == "":
		return fmt.Errorf("%s passes with the defect, too", name)
	default:
		fmt.Printf("  with it:    FAIL %s: %s\n", name, failure)
	}
	return nil
}

// try runs the test, and returns the first line of its failure, or "" where it passes.
func (d *defect) try(ctx context.Context, overlay string) (failure string, err error) {
	at, pkg := ".", module+d.pkg
	if strings.HasPrefix(d.pkg, apart) {
		at = apart
	}
	words := []string{"go", "test", "-C", at, "-count=1", "-v", "-vet=off", "-timeout=10m", "-run", pattern(d.test), pkg}
	if servers := d.Fields["servers"]; servers != "" {
		words = slices.Concat([]string{".cache/bin/services", "-only", servers}, words)
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], d.args...)...)           //nolint:gosec // they are ours
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay) // Also of what the test builds.
	out, err := cmd.CombinedOutput()
	isRun := bytes.Contains(out, []byte("--- PASS: "+d.test)) || bytes.Contains(out, []byte("--- FAIL: "))
	exit := new(exec.ExitError)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil && isRun:
		return "", nil
	case err != nil && !errors.As(err, &exit):
		return "", err
	case !isRun && !bytes.Contains(out, []byte("panic: ")):
		return "", fmt.Errorf("the test does not run:\n%s", out[max(0, len(out)-1000):])
	}
	return firstFailure(out), nil
}

// pattern is what -run takes for a test, or a case of it.
func pattern(test string) string {
	return "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
}

// failures are the lines that tell of one, the most telling first: of testify, of a panic, of the testing package.
var failures = []*regexp.Regexp{
	regexp.MustCompile(`(?s)\tError:\s+(.+?)\n\s+\tTest:`),
	regexp.MustCompile(`panic: ([^\n]+)`),
	regexp.MustCompile(`_test\.go:\d+: ([^\n]+)\n(?:[^\n]*\n)*?[^\n]*--- FAIL`),
	regexp.MustCompile(`--- FAIL: ([^\n]+)`),
}

func firstFailure(out []byte) string {
	for _, f := range failures {
		if found := f.FindSubmatch(out); found != nil {
			text := strings.Join(strings.Fields(string(found[1])), " ")
			return text[:min(len(text), 200)]
		}
	}
	return "it fails"
}
