// Command mutants changes one operator, condition or statement of the product at a time, and says
// which changes no test notices: what survives is not tested, or not needed.
//
//	go run ./test/mutants -n 250 -seeds 40
//
// Go files are changed once, to have all mutants in them (mutant schemata: R. H. Untch and others,
// "Mutation analysis using mutant schemata", 1993); the environment of a process says which one is
// alive in it. So each test program is built once, and a mutant costs its runs alone. A
// script's mutant is given to the simulation, whose Redis runs it, as a fault of test/breaks is. The
// tree is not changed: the compiler is given the files in place of those of the tree.
//
// Of all mutants, -n are drawn by -seed. Each is tried with the tests of its package (those that need no
// server, unless command services has started some), a script's with its oracle, mend's with those of bridge verify, too; then with the simulation of the whole. A test
// that fails, or that takes five times as long as without a mutant, has killed it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/faults"
)

const module = "github.com/delaybridge/delaybridge/"

// sources are the files that are changed: what decides. A folder stands for all of its files.
var sources = []string{
	"internal/poller/batch", "internal/poller/routes", "internal/poller/rate", "internal/poller/shard.go", "internal/poller/turn.go",
	"internal/poller/trouble.go", "internal/poller/planner.go", "internal/poller/assign.go",
	"internal/window", "internal/membership", "internal/jobs",
	"internal/outbox/relay/judge.go", "internal/outbox/relay/judgement.go", "internal/outbox/relay/lane.go", "internal/outbox/relay/sight.go",
	"internal/outbox/relay/lives.go", "internal/outbox/settler/backlog.go", "internal/outbox/settler/pass.go",
	"internal/outbox/auditor/comparison.go", "internal/outbox/auditor/turns.go", "internal/outbox/auditor/pass.go",
	"internal/engine/store/scripts",
}

// mutant is one change.
type mutant struct {
	id   int
	file string // within the tree
	line int
	what string
	env  string // has it live
	text string // of a script: all of it
}

// killer is a test program that may notice a mutant.
type killer struct {
	program, dir string
	args         []string
	limit        time.Duration // five times what it takes without a mutant
}

func main() {
	n := flag.Int("n", 250, "how many mutants are drawn; 0: all")
	seed := flag.Uint64("seed", 1, "which are drawn")
	seeds := flag.Int("seeds", 40, "how many seeds of the simulation each is tried with")
	only := flag.String("only", "", "a part of the names of the files")
	ids := flag.String("ids", "", "these alone, with commas between them")
	list := flag.Bool("list", false, "list the mutants and try none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *n, *seed, *seeds, *only, *ids, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context, n int, seed uint64, seeds int, only, ids string, list bool) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	exact := filepath.Join(dir, "exact")
	if out, err := exec.CommandContext(ctx, "go", "run", "./internal/sim/overlay", exact).CombinedOutput(); err != nil {
		return fmt.Errorf("overlay: %w\n%s", err, out)
	}
	overlay, err := faults.ReadOverlay(filepath.Join(exact, "overlay.json"))
	if err != nil {
		return err
	}
	all, err := change(dir, overlay)
	if err != nil {
		return err
	}
	named := strings.Split(ids, ",")
	drawn := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		return !strings.Contains(m.file, only) || ids != "" && !slices.Contains(named, strconv.Itoa(m.id))
	})
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	if n > 0 {
		drawn = drawn[:min(n, len(drawn))]
	}
	slices.SortFunc(drawn, func(a, b mutant) int { return a.id - b.id })
	fmt.Printf("%d of %d mutants\n", len(drawn), len(all))
	if list {
		for _, m := range drawn {
			fmt.Println(m)
		}
		return nil
	}
	killers, err := build(ctx, dir, overlay, drawn, seeds)
	if err != nil {
		return err
	}
	began, survivors := time.Now(), []mutant(nil)
	for _, m := range drawn {
		by, err := m.try(ctx, dir, killers)
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		if by == "" {
			survivors = append(survivors, m)
		}
		fmt.Println(m, "|", by)
	}
	for _, m := range survivors {
		fmt.Println("SURVIVES", m)
	}
	fmt.Printf("%d of %d are noticed, in %s\n", len(drawn)-len(survivors), len(drawn), time.Since(began).Round(time.Second))
	return nil
}

// String says what is changed, and where.
func (m mutant) String() string { return fmt.Sprintf("%d %s:%d %s", m.id, m.file, m.line, m.what) }

// change writes all mutants into copies of the files in dir, which it adds to what the compiler takes in place of
// others.
func change(dir string, overlay faults.Overlay) (all []mutant, err error) {
	packages := map[string]bool{}
	for _, source := range sources {
		files := []string{source}
		if filepath.Ext(source) == "" {
			goFiles, _ := filepath.Glob(source + "/*.go") // The patterns are ours.
			scripts, _ := filepath.Glob(source + "/*.lua")
			shared, _ := filepath.Glob(source + "/shared/*.lua")
			files = slices.Concat(goFiles, scripts, shared)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			switch {
			case strings.HasSuffix(file, "_test.go"), filepath.Ext(file) == ".go" && strings.HasSuffix(source, "/scripts"):
			case filepath.Ext(file) == ".lua":
				all = append(all, scriptMutants(file, string(text), len(all)+1)...)
			default:
				changed, more, err := schemata(file, text, len(all)+1)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				all = append(all, more...)
				if err := overlay.Put(dir, file, string(changed)); err != nil {
					return nil, err
				}
				if folder := filepath.Dir(file); !packages[folder] {
					packages[folder] = true
					if err := overlay.Put(dir, filepath.Join(folder, "mutant_helpers.go"), string(helpers(text))); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return all, nil
}

// build builds the test programs, and looks how long each takes. The key is the folder, and "" that of
// the simulation.
func build(ctx context.Context, dir string, overlay faults.Overlay, drawn []mutant, seeds int) (map[string]*killer, error) {
	file, err := overlay.Write(dir)
	if err != nil {
		return nil, err
	}
	killers := map[string]*killer{"": {dir: "internal/sim", args: []string{"-test.run=^TestSimulation$", "-seeds", strconv.Itoa(seeds)}}}
	for _, m := range drawn {
		for _, folder := range m.folders() {
			k := &killer{dir: folder, args: []string{"-test.failfast"}}
			switch {
			case folder == oracle:
				k.dir, k.args = "internal/sim", append(k.args, "-test.run=^TestConformance$/^in_process$", "-operations=10000")
			case strings.HasPrefix(folder, "internal/outbox/"):
				k.args = append(k.args, "-test.run="+machines)
			case folder == "internal/jobs":
				k.args = append(k.args, "-test.run=Stop|Pace")
			}
			killers[folder] = k
		}
	}
	for folder, k := range killers {
		k.program, k.limit = filepath.Join(dir, strings.ReplaceAll(k.dir, "/", "_")+".test"), time.Hour
		// What was built already is taken from the compiler's cache.
		out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", k.program, module+k.dir).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", k.dir, err, out)
		}
		began := time.Now()
		if by, err := k.kills(ctx, "MUTANT=0"); err != nil || by != "" {
			return nil, fmt.Errorf("%s fails without a mutant: %s %w", k.dir, by, err)
		}
		took := time.Since(began)
		k.limit = 5*took + 10*time.Second
		fmt.Printf("%-30s %s without a mutant\n", folder, took.Round(time.Millisecond))
	}
	return killers, nil
}

// try says by what the mutant is noticed; "" if it is not.
func (m mutant) try(ctx context.Context, dir string, killers map[string]*killer) (by string, err error) {
	for _, folder := range append(m.folders(), "") {
		if by, err = killers[folder].kills(ctx, m.env); by != "" || err != nil {
			break
		}
	}
	if by == "" && err == nil && filepath.Base(m.file) == "mend.lua" { // Shards that need it are made by the tests of bridge verify.
		by, err = m.embedded(ctx, dir, "internal/engine/store/verify")
	}
	return by, err
}

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
	k := killer{program: "go", args: []string{"test", "-vet=off", "-failfast", "-timeout=5m", "-overlay", file, module + folder}, limit: 10 * time.Minute}
	return k.kills(ctx, "MUTANT=0")
}

// oracle stands for the tests of the scripts by themselves.
const oracle = "oracle"

// machines are the tests of the outbox that need no database; others start one.
const machines = "^Test(Judge|Judgement|JudgeErrors|PutVerdicts|Ended|MaybeOut|NewRows.*|BatchAfter.*|SlowWay.*|LateCommitIs.*|Sight|ALook.*|SomebodyLooks.*|Lane|Screen.*|ALostQueue.*|WhoseTheRows.*|Comparison|Turns|Backlog)"

// folders are the packages whose tests may notice the mutant.
func (m mutant) folders() (folders []string) {
	switch folder := filepath.Dir(m.file); {
	case filepath.Ext(m.file) == ".lua":
		folders = []string{oracle}
	case strings.HasPrefix(folder, "internal/poller/"):
		folders = []string{folder, "internal/poller"}
	default:
		folders = []string{folder}
	}
	return folders
}

// kills runs the tests with a mutant, and says which fails.
func (k *killer) kills(ctx context.Context, env string) (by string, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.limit)
	defer cancel()
	var out bytes.Buffer
	tests := exec.CommandContext(ctx, k.program, k.args...) //nolint:gosec // it was built here
	tests.Env, tests.Dir, tests.Stdout, tests.Stderr = append(os.Environ(), env), k.dir, &out, &out
	tests.WaitDelay = time.Second
	err = tests.Run()
	exit := new(exec.ExitError)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return k.dir + ": too slow", nil
	case err == nil:
		return "", nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return "", err
	}
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); strings.Contains(line, "never met") {
			return "", nil // Few seeds do not have all pairs of conditions meet.
		} else if strings.HasPrefix(line, "--- FAIL") || strings.Contains(line, "seed ") || strings.HasPrefix(line, "panic:") {
			return k.dir + ": " + line[:min(len(line), 120)], nil
		}
	}
	return k.dir + ": fails", nil
}
