// Command mutants changes one operator, condition or statement of the product at a time, and says
// which changes no test notices: what survives is not tested, or not needed.
//
//	services -only redis,postgres,mariadb go run ./test/mutants -n 250 -seeds 20
//
// Go files are changed once, to have all mutants in them (mutant schemata: R. H. Untch and others,
// "Mutation analysis using mutant schemata", 1993); the environment of a process says which one is
// alive in it. So each test program is built once, and a mutant costs its runs alone. A
// script's mutant is given to the simulation, whose Redis runs it, as a fault of test/breaks is. The
// tree is not changed: the compiler is given the files in place of those of the tree.
//
// At first each test runs by itself, without a mutant: that says what it costs and which mutants it
// reaches. The limit of a comparison is reached where both sides are equal, and nowhere else. Then each
// mutant, of which -n are drawn by -seed, is tried with the tests that reach it, of its package and of
// those that use it, and with the simulation of the whole: the cheapest first, and no more once one has
// failed. What takes five times the CPU, or hangs, has failed, too. A failure counts if the same tests pass
// without the mutant at that time, so a busy machine is none. A mutant that no test reaches survives.
// An interrupt ends it with what it has. Tests that need a server reach nothing, unless command services has started it. A script meets its
// oracle, mend those of bridge verify, too.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
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
	"internal/outbox/table/ended.go", "internal/outbox/table/group.go", "internal/outbox/table/list.go", "internal/outbox/table/lives.go", "internal/outbox/table/lock.go",
	"internal/outbox/table/news.go", "internal/outbox/table/operated.go", "internal/outbox/table/pending.go", "internal/outbox/table/query.go", "internal/outbox/table/refused.go",
	"internal/outbox/table/settle.go", "internal/outbox/table/stored.go", "internal/outbox/table/write.go",
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
	all, err := changeAll(dir, overlay)
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
	var survivors []string
	var took []time.Duration
	noticed, tried := map[string]int{}, map[string]int{}
	for _, m := range drawn {
		began := time.Now()
		by, err := m.try(ctx, dir, killers)
		if ctx.Err() != nil { // It was interrupted.
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		took = append(took, time.Since(began))
		if tried[filepath.Dir(m.file)]++; by != "" {
			noticed[filepath.Dir(m.file)]++
		} else {
			survivors = append(survivors, fmt.Sprintf("SURVIVES %s (tests reach it: %t)", m, len(grouped(m.id, killers)) > 0))
		}
		fmt.Println(m, "|", by, "|", took[len(took)-1].Round(time.Millisecond))
	}
	for _, folder := range slices.Sorted(maps.Keys(tried)) {
		fmt.Printf("%-30s %d of %d\n", folder, noticed[folder], tried[folder])
	}
	if len(took) > 0 {
		slices.Sort(took)
		fmt.Println(strings.Join(survivors, "\n"))
		fmt.Printf("%d of %d are noticed; the median mutant took %s\n", len(took)-len(survivors), len(took), took[len(took)/2].Round(time.Millisecond))
	}
	return nil
}

// String says what is changed, and where.
func (m mutant) String() string { return fmt.Sprintf("%d %s:%d %s", m.id, m.file, m.line, m.what) }

// changeAll writes all mutants into copies of the files in dir, which it adds to what the compiler takes in place of
// others.
func changeAll(dir string, overlay faults.Overlay) (all []mutant, err error) {
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
